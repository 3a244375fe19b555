#pragma once

#include <string>
#include <string_view>

namespace norma {

/// The SHA-256 (FIPS 180-4) of bytes, as 64 hexadecimal digits: what sha256sum prints. Throws Error where
/// libcrypto has none.
std::string sha256(std::string_view bytes);

}  // namespace norma

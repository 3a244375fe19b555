#include "base/sha256.h"

#include "base/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>

#include <array>
#include <cstddef>

namespace norma {

std::string sha256(std::string_view bytes) {
  std::array<unsigned char, 32> digest = {};
  size_t size = digest.size();
  check(EVP_Q_digest(nullptr, "SHA256", nullptr, bytes.data(), bytes.size(), digest.data(), &size) == 1, "sha256",
        "libcrypto could not compute it");
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

}  // namespace norma

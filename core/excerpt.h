#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace norma {

/// A text that a terminal shows as it is: control characters but line breaks and tabs, and bytes that are no UTF-8,
/// become '?'.
std::string plain_text(std::string_view text);

/// A text from a file or a user, for an error text of one line: at most `limit` bytes, cut between characters with "…"
/// for the rest. As plain_text(), line breaks and tabs included.
std::string excerpt(std::string_view text, size_t limit = 100);

/// "a, b, c", or of more than six names "a, b, c, d, e, f and 58 more". Each is cut to `limit` bytes as by excerpt().
std::string excerpt_list(const std::vector<std::string>& names, std::string_view separator = ", ", size_t limit = 100);

/// Columns that a UTF-8 text takes on a terminal: its characters.
size_t columns_of(std::string_view text);

/// "17 bytes", "1 MiB", "2.5 GiB".
std::string byte_text(uint64_t bytes);

}  // namespace norma

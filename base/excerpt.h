#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace norma {

/// True iff the bytes are UTF-8, by the table of well-formed byte sequences of the Unicode standard (3-7).
bool is_utf8(std::string_view text);

/// The text made safe for a terminal: control characters except line breaks and tabs, and bytes that are not UTF-8,
/// become '?'.
std::string plain_text(std::string_view text);

/// The text of a file or a user, cut for a one-line error: at most `limit` bytes, whole characters, "…" for the rest.
/// Characters become '?' as in plain_text(), and so do line breaks and tabs.
std::string excerpt(std::string_view text, size_t limit = 100);

/// Joins names: "a, b, c", or "a, b, c, d, e, f and 58 more" if there are more than six. excerpt() cuts each to
/// `limit`.
std::string excerpt_list(const std::vector<std::string>& names, std::string_view separator = ", ", size_t limit = 100);

/// The columns that a UTF-8 text takes on a terminal, counted as one for each character.
size_t columns_of(std::string_view text);

/// "17 bytes", "1 MiB", "2.5 GiB".
std::string byte_text(uint64_t bytes);

}  // namespace norma

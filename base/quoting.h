#pragma once

#include <string>
#include <string_view>

// A text as it stands inside another language, so that it is read there as that text and nothing else.

namespace norma {

/// A field of a CSV line (RFC 4180), in quotes where it has to be.
std::string csv_field(std::string_view text);

/// A word in single quotes, as POSIX shells and zsh take it.
std::string shell_quoted(std::string_view word);
/// The same, in quotes only where it needs them.
std::string shell_word(std::string_view word);

/// HTML, also inside the quotes of an attribute. Control characters, which HTML may not have, become '?'.
std::string escape_html(std::string_view text);

/// GitHub's Markdown, on one line. Control characters become '?'.
std::string escape_markdown(std::string_view text);

}  // namespace norma

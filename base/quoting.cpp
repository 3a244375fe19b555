#include "base/quoting.h"

#include "base/excerpt.h"

namespace norma {

namespace {

/// The text between two `quote`s, and `doubled` for each that it holds.
std::string quoted(std::string_view text, char quote, std::string_view doubled) {
  std::string result(1, quote);
  for (const char c : text) {
    result += c == quote ? doubled : std::string_view(&c, 1);
  }
  return result + quote;
}

/// What HTML and Markdown write for a character; "" for most.
std::string_view entity(char c) {
  switch (c) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    default: return "";
  }
}

}  // namespace

std::string csv_field(std::string_view text) {
  return text.find_first_of(",\"\r\n") == std::string_view::npos ? std::string(text) : quoted(text, '"', "\"\"");
}

std::string shell_quoted(std::string_view word) {
  return quoted(word, '\'', "'\\''");
}

std::string shell_word(std::string_view word) {
  const bool plain = !word.empty() && word.find_first_of(" \t\n'\"\\$&|;<>()[]{}*?`!#~") == std::string_view::npos;
  return plain ? std::string(word) : shell_quoted(word);
}

std::string escape_html(std::string_view text) {
  std::string result;
  for (const char c : plain_text(text)) {
    const std::string_view written = c == '"' ? "&quot;" : c == '\'' ? "&#39;" : entity(c);
    result += written.empty() ? std::string_view(&c, 1) : written;
  }
  return result;
}

std::string escape_markdown(std::string_view text) {
  constexpr std::string_view kMarks = "\\`*_{}[]#|~";
  std::string result;
  for (const char c : plain_text(text)) {
    const std::string_view written = c == '\n' || c == '\t' ? " " : entity(c);  // not every reader knows \<
    result += kMarks.find(c) != std::string_view::npos ? "\\" : "";
    result += written.empty() ? std::string_view(&c, 1) : written;
  }
  return result;
}

}  // namespace norma

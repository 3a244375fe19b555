#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

// Files of lines `key = value`: TOML without tables, as policies and options have them.

namespace norma {

/// A text, a number or true or false; monostate: anything else.
using TomlScalar = std::variant<std::monostate, bool, int64_t, double, std::string>;

/// One line of a file.
struct TomlLine {
  std::string key;
  TomlScalar value;
  std::optional<std::vector<TomlScalar>> list;  ///< the entries of a list; `value` is monostate then
  /// Not empty where the value is a table: "layer1.0.bn1", the key that a user wrote with dots and without quotes.
  std::string dotted_key;
  std::string key_place;    ///< "p.toml:2:1", for error texts
  std::string value_place;  ///< "p.toml:2:9"
  int64_t line = 0;         ///< number of the line in the file

  /// The value if it is a text, else null.
  [[nodiscard]] const std::string* text() const { return std::get_if<std::string>(&value); }
};

/// The form of the lines of one kind of file.
struct TomlForm {
  std::string_view line;         ///< for error texts: "option = value"
  std::string_view key;          ///< for error texts: "option"
  size_t max_line_bytes = 1000;  ///< of one line; files have 1 MiB at most
  bool dotted_keys = false;  ///< keys with dots come as TomlLine::dotted_key, for a better error text; false: refused
};

/// The most bytes that a file may have.
inline constexpr uint64_t kMaxTomlBytes = uint64_t{1} << 20;

/// The lines in the order of the text. Throws Error of `op`, with `source` and the line, for text that is no TOML, for
/// a key that comes twice, for tables, and for a text or a line that is too long.
std::vector<TomlLine> parse_toml_lines(std::string_view op, std::string_view text, const std::string& source,
                                       const TomlForm& form);

/// A text or a number as a word of the command line; "" for any other value.
std::string toml_word(const TomlScalar& value);

/// A text as a TOML string, with its quotes.
std::string toml_string(std::string_view text);

}  // namespace norma

#include "base/toml_lines.h"

#include "base/error.h"
#include "base/excerpt.h"

#include <fmt/format.h>
#define TOML_HEADER_ONLY 1
#define TOML_MAX_NESTED_VALUES 4  // a line has a list at most
#include <toml++/toml.h>

#include <algorithm>
#include <tuple>
#include <type_traits>
#include <utility>

namespace norma {
namespace {

/// "p.toml:2:9"
std::string at(const std::string& source, const toml::source_position& position) {
  return fmt::format("{}:{}:{}", source, position.line, position.column);
}

/// "layer1.0.bn1" for {layer1 = {0 = {bn1 = …}}}, which is what TOML makes of a key with dots and no quotes.
std::string dotted(std::string path, const toml::node& node) {
  const toml::table* table = node.as_table();
  while (table != nullptr && !table->empty()) {
    path += '.';
    path += table->begin()->first.str();
    table = table->begin()->second.as_table();
  }
  return path;
}

/// Takes the first line away from `text`.
std::string_view next_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(line.size() + 1, text.size()));
  return line;
}

/// The key of a line. toml++ names it wrongly when the same key came before.
std::string key_of_line(std::string_view text, size_t line) {
  for (size_t i = 1; i < line; ++i) {
    next_line(text);
  }
  try {
    const toml::table table = toml::parse(next_line(text));
    return table.empty() ? "" : dotted(std::string(table.begin()->first.str()), table.begin()->second);
  } catch (const toml::parse_error&) {
    return "";
  }
}

/// Refuses long lines and tables: toml++ recurses once for each dot of a key, and version 3.3 assumes a key after the
/// bracket of a table without looking.
void check_lines(std::string_view op, std::string_view text, const std::string& source, const TomlForm& form) {
  check(text.size() <= kMaxTomlBytes, op, "{}: expected at most {}, got {}", source, byte_text(kMaxTomlBytes),
        byte_text(text.size()));
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // which toml++ passes over
  if (text.starts_with(kByteOrderMark)) {
    text.remove_prefix(kByteOrderMark.size());
  }
  for (int64_t number = 1; !text.empty(); ++number) {
    std::string_view line = next_line(text);
    check(line.size() <= form.max_line_bytes, op, "{}:{}: expected a line of at most {} bytes, got {}", source, number,
          form.max_line_bytes, line.size());
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    const size_t end = line.find_first_of("=#\"'");
    const bool dots = end != std::string_view::npos && line[end] == '=' && line.find('.') < end;
    check(!line.starts_with('[') && (form.dotted_keys || !dots), op, "{}:{}: expected a line {}, got '{}'", source,
          number, form.line, excerpt(line));
  }
}

toml::table parse_table(std::string_view op, std::string_view text, const std::string& source, const TomlForm& form) {
  check_lines(op, text, source, form);
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    const std::string place = at(source, error.source().begin);
    const bool twice = error.description().find("cannot redefine") != std::string_view::npos;
    const std::string key = twice ? key_of_line(text, error.source().begin.line) : "";
    check(key.empty(), op, "{}: '{}': expected each {} once, got it again", place, excerpt(key), form.key);
    fail(op, "{}: {}", place, excerpt(error.description(), 300));
  }
}

TomlScalar scalar_of(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) {
    return *text;
  }
  if (const auto on = node.value_exact<bool>()) {
    return *on;
  }
  if (const auto whole = node.value_exact<int64_t>()) {
    return *whole;
  }
  if (const auto number = node.value_exact<double>()) {
    return *number;
  }
  return {};
}

std::vector<TomlScalar> scalars_of(const toml::array& array) {
  std::vector<TomlScalar> items;
  for (const toml::node& node : array) {
    items.push_back(scalar_of(node));
  }
  return items;
}

TomlLine line_of(const std::string& source, const toml::key& key, const toml::node& node) {
  TomlLine line;
  line.key = key.str();
  line.value = scalar_of(node);
  if (const toml::array* array = node.as_array()) {
    line.list = scalars_of(*array);
  }
  if (node.is_table()) {
    line.dotted_key = dotted(line.key, node);
  }
  line.key_place = at(source, key.source().begin);
  line.value_place = at(source, node.source().begin);
  line.line = static_cast<int64_t>(node.source().begin.line);
  return line;
}

}  // namespace

std::vector<TomlLine> parse_toml_lines(std::string_view op, std::string_view text, const std::string& source,
                                       const TomlForm& form) {
  std::vector<std::pair<toml::source_position, TomlLine>> lines;
  const toml::table table = parse_table(op, text, source, form);
  for (const auto& [key, node] : table) {
    lines.emplace_back(key.source().begin, line_of(source, key, node));
  }
  // A TOML table is sorted by name.
  std::sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first.line, a.first.column) < std::tie(b.first.line, b.first.column);
  });
  std::vector<TomlLine> result;
  result.reserve(lines.size());
  for (auto& [position, line] : lines) {
    result.push_back(std::move(line));
  }
  return result;
}

std::string toml_word(const TomlScalar& value) {
  return std::visit(
      []<class T>(const T& its) {
        if constexpr (std::is_same_v<T, std::monostate> || std::is_same_v<T, bool>) {
          return std::string();
        } else {
          return fmt::format("{}", its);
        }
      },
      value);
}

std::string toml_string(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (code < ' ' || code == 0x7F) {
      quoted += fmt::format("\\u{:04X}", code);
    } else {
      quoted += c;
    }
  }
  return quoted + '"';
}

}  // namespace norma

#include "cli/config_file.h"

#include "core/error.h"
#include "core/excerpt.h"
#include "core/input_file.h"

#include <fmt/format.h>
#define TOML_HEADER_ONLY 1
#define TOML_MAX_NESTED_VALUES 4  // an option has an array at most
#include <toml++/toml.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <sstream>
#include <tuple>
#include <utility>

namespace norma::cli {

namespace {

std::string at(const std::string& source, const toml::source_position& position) {
  return fmt::format("{}:{}:{}", source, position.line, position.column);
}

/// A text or a number as a word of the command line; none for anything else.
std::optional<std::string> word(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) {
    return text;
  }
  if (const auto whole = node.value_exact<int64_t>()) {
    return fmt::format("{}", *whole);
  }
  if (const auto number = node.value_exact<double>()) {
    return fmt::format("{}", *number);
  }
  return std::nullopt;
}

/// An array of words with commas between them; none for one that holds anything else, or nothing.
std::optional<std::string> words(const toml::array& array) {
  std::string text;
  for (const toml::node& node : array) {
    const std::optional<std::string> item = word(node);
    if (!item) {
      return std::nullopt;
    }
    text += (text.empty() ? "" : ",") + *item;
  }
  return text.empty() ? std::nullopt : std::optional(text);
}

/// toml++ walks tables in tables by recursion, one for each dot of a key, and 3.3 assumes a key behind the bracket of a
/// table without looking: neither is for options.
void check_lines(std::string_view op, const std::string& text, const std::string& source) {
  constexpr size_t kMaxLine = 4000;
  std::istringstream lines(text);
  int64_t number = 1;
  for (std::string line; std::getline(lines, line); ++number) {
    check(line.size() <= kMaxLine, op, "{}:{}: expected a line of at most {} bytes, got {}", source, number, kMaxLine,
          line.size());
    const size_t first = line.find_first_not_of(" \t");
    const bool table = first != std::string::npos && line[first] == '[';
    const size_t end = line.find_first_of("=#\"'");
    const bool dotted = end != std::string::npos && line[end] == '=' && line.find('.') < end;
    check(!table && !dotted, op, "{}:{}: expected a line option = value, got '{}'", source, number, excerpt(line));
  }
}

ConfigLine line_of(std::string_view op, const std::string& source, const toml::key& key, const toml::node& node) {
  ConfigLine line{.name = std::string(key.str()), .value = "", .place = at(source, key.source().begin)};
  if (const auto on = node.value_exact<bool>()) {
    line.value = *on ? "true" : "false";
    line.on_or_off = true;
    return line;
  }
  const toml::array* array = node.as_array();
  const std::optional<std::string> value = array != nullptr ? words(*array) : word(node);
  check(value.has_value(), op, "{}: {}: expected a text, a number, true, false or a list of texts or numbers",
        at(source, node.source().begin), excerpt(line.name));
  line.value = *value;
  return line;
}

}  // namespace

std::vector<ConfigLine> read_config(std::string_view op, const std::filesystem::path& file) {
  constexpr uint64_t kMaxBytes = uint64_t{1} << 20;
  const std::string text = read_text_file(op, file, kMaxBytes);
  const std::string source = file.string();
  check_lines(op, text, source);
  std::vector<std::pair<toml::source_position, ConfigLine>> lines;
  try {
    const toml::table table = toml::parse(text, source);
    for (const auto& [key, node] : table) {
      lines.emplace_back(key.source().begin, line_of(op, source, key, node));
    }
  } catch (const toml::parse_error& error) {
    fail(op, "{}: {}", at(source, error.source().begin), excerpt(error.description(), 300));
  }
  // toml++ sorts by name.
  std::sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first.line, a.first.column) < std::tie(b.first.line, b.first.column);
  });
  std::vector<ConfigLine> result;
  for (auto& [position, line] : lines) {
    result.push_back(std::move(line));
  }
  return result;
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

std::string toml_number(double value) {
  return fmt::format("{}", value);
}
std::string toml_number(int64_t value) {
  return fmt::format("{}", value);
}
std::string toml_number(uint64_t value) {
  const std::string text = fmt::format("{}", value);
  return std::in_range<int64_t>(value) ? text : toml_string(text);
}

}  // namespace norma::cli

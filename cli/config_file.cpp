#include "cli/config_file.h"

#include "core/error.h"
#include "core/excerpt.h"
#include "core/input_file.h"
#include "core/toml_lines.h"

#include <fmt/format.h>

#include <optional>
#include <variant>

namespace norma::cli {

namespace {

/// A text or a number as a word of the command line; none for anything else.
std::optional<std::string> word(const TomlScalar& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    return *text;
  }
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    return fmt::format("{}", *whole);
  }
  if (const auto* number = std::get_if<double>(&value)) {
    return fmt::format("{}", *number);
  }
  return std::nullopt;
}

/// A list of words with commas between them; none for one that holds anything else, or nothing.
std::optional<std::string> words(const std::vector<TomlScalar>& list) {
  std::string text;
  for (const TomlScalar& value : list) {
    const std::optional<std::string> item = word(value);
    if (!item) {
      return std::nullopt;
    }
    text += (text.empty() ? "" : ",") + *item;
  }
  return text.empty() ? std::nullopt : std::optional(text);
}

ConfigLine config_line(std::string_view op, const TomlLine& line) {
  if (const auto* on = std::get_if<bool>(&line.value)) {
    return {.name = line.key, .value = *on ? "true" : "false", .on_or_off = true, .place = line.key_place};
  }
  const std::optional<std::string> value = line.list ? words(*line.list) : word(line.value);
  check(value.has_value(), op, "{}: {}: expected a text, a number, true, false or a list of texts or numbers",
        line.value_place, excerpt(line.key));
  return {.name = line.key, .value = *value, .place = line.key_place};
}

}  // namespace

std::vector<ConfigLine> read_config(std::string_view op, const std::filesystem::path& file) {
  const TomlForm form{.line = "option = value", .key = "option", .max_line_bytes = 4000};
  std::vector<ConfigLine> result;
  for (const TomlLine& line : parse_toml_lines(op, read_text_file(op, file, kMaxTomlBytes), file.string(), form)) {
    result.push_back(config_line(op, line));
  }
  return result;
}

}  // namespace norma::cli

#include "nn/policy_file.h"

#include "base/toml_lines.h"

#include <fmt/format.h>

#include <fnmatch.h>

#include <optional>
#include <utility>
#include <variant>

namespace norma::nn {

bool matches_pattern(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

std::vector<PolicyLine> parse_policy_file(std::string_view op, std::string_view text, const std::string& source) {
  const TomlForm form{.line = "\"pattern\" = \"text\"", .key = "pattern", .dotted_keys = true};
  std::vector<PolicyLine> result;
  for (TomlLine& line : parse_toml_lines(op, text, source, form)) {
    const auto* rule = std::get_if<std::string>(&line.value);
    result.push_back({.pattern = std::move(line.key),
                      .text = rule != nullptr ? std::optional(*rule) : std::nullopt,
                      .type = line.dotted_key.empty()
                                  ? "another type"
                                  : fmt::format("a table: a pattern with dots needs quotes, \"{}\"", line.dotted_key),
                      .pattern_place = std::move(line.key_place),
                      .text_place = std::move(line.value_place),
                      .line = line.line});
  }
  return result;
}

}  // namespace norma::nn

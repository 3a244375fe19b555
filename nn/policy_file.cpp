#include "nn/policy_file.h"

#include <fmt/format.h>

#include <fnmatch.h>

namespace norma::nn {

bool matches_pattern(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

std::vector<TomlLine> parse_policy_file(std::string_view op, std::string_view text, const std::string& source) {
  return parse_toml_lines(op, text, source, {.line = "\"pattern\" = \"text\"", .key = "pattern", .dotted_keys = true});
}

std::string type_of(const TomlLine& line) {
  return line.dotted_key.empty() ? "another type"
                                 : fmt::format("a table: a pattern with dots needs quotes, \"{}\"", line.dotted_key);
}

}  // namespace norma::nn

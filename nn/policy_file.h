#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The policy files (nn/norm/policy.h, nn/cast_policy.h) share this: TOML with a pattern and a text in each line.

namespace norma::nn {

/// True iff a name matches a pattern of the shell: * is any text, dots too; ? is one character; [12] one of these.
bool matches_pattern(const std::string& pattern, const std::string& name);

/// One line of a policy file.
struct PolicyLine {
  std::string pattern;
  std::optional<std::string> text;  ///< none if the value is of another type
  std::string type;                 ///< that type, for an error text
  std::string pattern_place;        ///< "p.toml:2:1", for error texts
  std::string text_place;           ///< "p.toml:2:9"
  int64_t line = 0;                 ///< number of the line in the file
};

/// The lines in the order of the file. Throws Error of `op` with line and column for text that is no TOML, for a key
/// that comes twice, and for a text above 1 MiB (kMaxTomlBytes) or a line above 1000 bytes.
std::vector<PolicyLine> parse_policy_file(std::string_view op, std::string_view text, const std::string& source);

}  // namespace norma::nn

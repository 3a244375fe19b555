#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What the policy files (nn/norm/policy.h, nn/cast_policy.h) share: TOML with a pattern and a text in each line.

namespace norma::nn {

/// One line of a policy file.
struct PolicyLine {
  std::string pattern;
  std::optional<std::string> text;  ///< none where the value is of another type
  std::string type;                 ///< what it is then, for an error text
  std::string pattern_place;        ///< "p.toml:2:1", for error texts
  std::string text_place;           ///< "p.toml:2:9"
  int64_t line = 0;                 ///< of the file
};

/// The lines in the order of the file. Throws Error of `op` with line and column for text that is no TOML, for a key
/// that comes twice, and for a text or a line that is far longer than policies are.
std::vector<PolicyLine> parse_policy_file(std::string_view op, std::string_view text, const std::string& source);

/// The text of a file. Throws Error of `op` when it cannot be read.
std::string read_policy_file(std::string_view op, const std::filesystem::path& file);

}  // namespace norma::nn

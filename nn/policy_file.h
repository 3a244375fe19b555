#pragma once

#include "base/toml_lines.h"

#include <string>
#include <string_view>
#include <vector>

// The policy files (nn/norm/policy.h, nn/cast_policy.h) share this: TOML with a pattern and a text in each line.

namespace norma::nn {

/// True iff a name matches a pattern of the shell: * is any text, dots too; ? is one character; [12] one of these.
bool matches_pattern(const std::string& pattern, const std::string& name);

/// The lines in the order of the file. Throws Error of `op` with line and column for text that is no TOML, for a key
/// that comes twice, and for a text above 1 MiB (kMaxTomlBytes) or a line above 1000 bytes.
std::vector<TomlLine> parse_policy_file(std::string_view op, std::string_view text, const std::string& source);
/// The type of a value that is no text, for an error text.
std::string type_of(const TomlLine& line);

}  // namespace norma::nn

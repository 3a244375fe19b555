#pragma once

#include "core/autocast.h"

#include <filesystem>
#include <string>
#include <string_view>

namespace norma::nn {

// The cast policy of autocast (core/autocast.h) as a TOML file of op names, or patterns of the shell, and rules:
//
//   "batch_norm" = "float32"
//   "*_norm*" = "keep"
//   "linear" = "float32"
//
// The last line whose pattern matches an op decides; ops that no line matches keep the default.

/// The default policy with the changes of a text. Throws Error, with line and column, for text that is no TOML, for a
/// pattern that matches no op, for a value that is no rule, and for a text without lines.
CastPolicy parse_cast_policy(std::string_view text, const std::string& source);
/// The text of a cast policy file. Throws Error when it cannot be read.
std::string read_cast_policy(const std::filesystem::path& file);

/// Changes a policy by "layer_norm_2d=lower" or "*_norm=float32". Throws Error "cast: …" for another text, a pattern
/// that matches no op and an unknown rule.
void set_cast(CastPolicy& policy, const std::string& text);
/// A policy as a text for parse_cast_policy(): "*" = "keep", and below it a line for each op whose rule is not "keep".
std::string to_text(const CastPolicy& policy);

}  // namespace norma::nn

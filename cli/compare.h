#pragma once

#include <string>
#include <utility>
#include <vector>

namespace norma::cli {

/// An option of a comparison, or of how it runs, and its value as words: "img-size", {"64"}. A switch has the word
/// "true" or "false".
using NamedWords = std::pair<std::string, std::vector<std::string>>;

/// Runs the comparison that these options ask for, as `norma compare` does, and returns the exit code of that. The
/// options are those of lab::option_rows() and of run_options(), by any of their names, with - or _. `command` is for
/// the report. Throws Error for an unknown option and an invalid value.
int compare(const std::vector<NamedWords>& options, const std::string& command);

}  // namespace norma::cli

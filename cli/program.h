#pragma once

#include <string>
#include <utility>
#include <vector>

namespace norma::cli {

/// Runs the norma command with the words after its name: {"info"}. Returns the exit code (cli/command.h). Throws Error
/// for bad input, and while another command of this process runs.
int run_command(const std::vector<std::string>& words);
/// As run_command(), but prints errors, a full disk behind the standard output among them, and returns their exit code.
int run_program(const std::vector<std::string>& words);

/// An option of a comparison, or of how it runs, and its value as words: "img-size", {"64"}. A switch has the word
/// "true" or "false".
using NamedWords = std::pair<std::string, std::vector<std::string>>;

/// Runs the comparison that these options ask for, as `norma compare` does, and returns the exit code of that. The
/// options are those of lab::option_rows() and of run_options(), by any of their names, with - or _. `command` is for
/// the report. Throws Error for an unknown option and an invalid value.
int compare(const std::vector<NamedWords>& options, const std::string& command);

/// Sets program_name(), "norma" at first.
void note_program_name(std::string name);

}  // namespace norma::cli

#pragma once

#include <string>
#include <vector>

namespace norma::cli {

/// Runs the norma command with the words after its name: {"info"}. Returns the exit code (cli/command.h). Throws Error
/// for bad input, and while another command of this process runs.
int run_command(const std::vector<std::string>& words);
/// As run_command(), but prints errors, a full disk behind the standard output among them, and returns their exit code.
int run_program(const std::vector<std::string>& words);

/// Sets program_name(), "norma" at first.
void note_program_name(std::string name);

}  // namespace norma::cli

#pragma once

#include "cli/option_table.h"

#include <string>
#include <vector>

namespace norma::cli {

// Scripts that complete subcommands, options, the names that options take, and files.

std::string bash_completion(const std::vector<CommandRow>& table);
std::string zsh_completion(const std::vector<CommandRow>& table);
std::string fish_completion(const std::vector<CommandRow>& table);

}  // namespace norma::cli

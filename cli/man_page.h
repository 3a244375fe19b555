#pragma once

#include "cli/option_table.h"

#include <string>
#include <vector>

namespace norma::cli {

/// norma(1) in roff (man macros), in ASCII only, from the texts of --help.
std::string man_page(const std::vector<CommandRow>& table);

}  // namespace norma::cli

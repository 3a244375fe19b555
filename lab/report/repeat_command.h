#pragma once

#include "lab/report/report.h"

#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

/// A word as a shell takes it: in quotes where it needs them.
std::string shell_word(std::string_view word);

/// The files behind --plugin in a command line: norms of the comparison may be theirs.
std::vector<std::string> plugins_of(const std::string& command);

/// The `norma train` that trains a cell again: every option that differs from its default. On a machine and with a
/// version of the same kind it gives the same bits. Files of policies are named as they were.
std::string repeat_command(const Comparison& comparison, const Cell& cell);

}  // namespace norma::lab

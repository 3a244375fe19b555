#pragma once

#include "lab/report/report.h"

#include <string>

namespace norma::lab {

/// The `norma train` that trains a cell again: every option that differs from its default. On a machine and with a
/// version of the same kind it gives the same bits. Files of policies are named as they were.
std::string repeat_command(const Comparison& comparison, const Cell& cell);

}  // namespace norma::lab

#pragma once

#include "lab/report/report.h"

#include <string>

namespace norma::lab {

/// The `norma train` command that trains a cell again, with every option that differs from its default. On the same
/// kind of machine and with the same version it gives the same bits. Files of policies have their old names.
std::string repeat_command(const Comparison& comparison, const Cell& cell);

}  // namespace norma::lab

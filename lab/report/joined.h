#pragma once

#include "lab/report/report.h"

#include <string>
#include <vector>

namespace norma::lab {

/// The first thing that differs between the plans of two comparisons, "lr 0.002 → 0.001"; "" if both have the same
/// cells, recipe (but for the data's folder), weights at the start, exactness of convolutions, number of processes,
/// tune_lr, rounds of timing and number of parts.
std::string plan_difference(const Comparison& a, const Comparison& b);

/// Puts parts of one comparison together (Comparison::parts): each cell comes from the part that has it. Runs of
/// missing parts stay CellState::elsewhere. `names` are those of the parts in errors. Throws Error "report: …" for
/// parts of different plans, for a comparison that was not divided, and for a part that comes twice.
Comparison joined(const std::vector<std::string>& names, std::vector<Comparison> parts);

}  // namespace norma::lab

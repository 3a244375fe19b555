#pragma once

#include "lab/report/page.h"
#include "lab/report/report.h"

#include <string>
#include <vector>

namespace norma::lab {

/// The answer of one or several comparisons in one sentence, never empty: what norms cost beside batch norm, and
/// whether they are more or less accurate, as decided for their rows; where nothing is known, what is missing. Of
/// comparisons that have not ended, a second one says how far they are.
std::string opening_of(const std::vector<NamedComparison>& comparisons);

/// The parts of answer_of(): "resnet18: …", one for all groups of which the same is true.
std::vector<std::string> answers_of(const Comparison& comparison);

}  // namespace norma::lab

#pragma once

#include "lab/report/report.h"

#include <string>
#include <vector>

namespace norma::lab {

/// The answer of one or several comparisons in one sentence, never empty: what norms cost beside batch norm, and
/// whether they are more or less accurate; where nothing is known, what is missing.
std::string opening_of(const std::vector<const Comparison*>& comparisons);

/// The parts of answer_of(): "resnet18: …", one for all groups of which the same is true.
std::vector<std::string> answers_of(const Comparison& comparison);

}  // namespace norma::lab

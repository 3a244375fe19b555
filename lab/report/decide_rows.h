#pragma once

#include "lab/report/report.h"

#include <optional>
#include <vector>

namespace norma::lab {

/// How many norms are tested against their references for accuracy, in all groups of a comparison: those that shall
/// have two seeds or more, however many of these are finished.
int64_t accuracy_tests(const Comparison& comparison);
/// The same for the tax. Learning rates share theirs.
int64_t tax_tests(const Comparison& comparison);

/// Decides for each row whether it differs from its reference (decision.h), once all runs or rounds are made, and takes
/// images per second from the rounds where these are made.
void decide_rows(const Comparison& comparison, std::vector<Row>& rows);

/// The rounds of a row's group; nullptr before all of them are made.
const Timing* finished_timing(const Comparison& comparison, const Settings& row);

/// Seconds of a row's training step, the median of finished_timing(); nothing where there is none.
std::optional<double> seconds_of_step(const Comparison& comparison, const Settings& row);

}  // namespace norma::lab

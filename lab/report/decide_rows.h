#pragma once

#include "lab/report/report.h"

#include <optional>
#include <vector>

namespace norma::lab {

/// The number of norms tested against their references for accuracy, in all groups of a comparison: those planned with
/// two seeds or more, however many are finished.
int64_t accuracy_tests(const Comparison& comparison);
/// The number of norms tested for the tax, in all groups. Cells that differ only in learning rate, or in options that
/// change no step's work, share a test.
int64_t tax_tests(const Comparison& comparison);

/// Decides for each row if it differs from its reference (decision.h), once all runs or rounds are made. Takes images
/// per second from the rounds when these are made.
void decide_rows(const Comparison& comparison, std::vector<Row>& rows);

/// The rounds of a row's group; nullptr before all of them are made.
const Timing* finished_timing(const Comparison& comparison, const Settings& row);

/// Seconds of a row's training step, the median of finished_timing(); none without it.
std::optional<double> seconds_of_step(const Comparison& comparison, const Settings& row);

}  // namespace norma::lab

#pragma once

#include "lab/report/report.h"

#include <optional>
#include <vector>

namespace norma::lab {

/// The number of norms tested against their references for accuracy, in all groups of a comparison: those planned with
/// two seeds or more, however many are finished.
int64_t accuracy_tests(const Comparison& comparison);
/// The number of networks that are compared image by image with the reference's of the same seed (McNemar): p of each
/// such test is multiplied by it.
int64_t image_tests(const Comparison& comparison);
/// The number of norms tested for the tax, in all groups. Cells that differ only in learning rate, or in options that
/// change no step's work, share a test.
int64_t tax_tests(const Comparison& comparison);

/// Decides for each row if it differs from its reference (decision.h), once all runs or rounds are made. Takes images
/// per second from the rounds when these are made: the reference's are the batch size over the median of its steps, and
/// every other norm's are the reference's less the tax. So a slow moment of the machine, which meets all norms of a
/// round, cannot make a rate that contradicts the tax.
void decide_rows(const Comparison& comparison, std::vector<Row>& rows);

/// The rounds of a row's group; nullptr before all of them are made.
const Timing* finished_timing(const Comparison& comparison, const Settings& row);

/// Seconds of a row's training step, of the same rounds and by the same rule; none before they are made.
std::optional<double> seconds_of_step(const Comparison& comparison, const Settings& row);

}  // namespace norma::lab

#pragma once

#include "lab/compare/comparison.h"

#include <cstdint>
#include <vector>

namespace norma::lab {

/// What the learning rate of the recipe is multiplied by in a sweep.
std::vector<double> tuning_factors();

/// Steps of each trial for a run of so many: a fifth of them, but 20 at least, and no more than the run has.
int64_t tuning_steps(int64_t run_steps);
/// The same in batches, of which `accumulate` make a step.
int64_t tuning_batches(int64_t run_batches, int64_t accumulate);

/// The mean of the last quarter of a trial's losses, one at least.
double final_loss(const std::vector<double>& losses);

/// Makes the trials that comparison.tunings lacks, and writes the report after each, until interrupted()
/// (interrupt.h). They train by the recipe of their cells, its schedule as short as they are, with the first seed, and
/// never look at the test images. One that throws, as for a loss that is not finite, is a result.
void tune_rates(Comparison& comparison, const ComparisonOptions& options);

/// True iff no trial is missing.
bool tuning_is_complete(const Comparison& comparison);

}  // namespace norma::lab

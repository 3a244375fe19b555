#pragma once

#include "lab/compare/comparison.h"

#include <cstdint>
#include <vector>

namespace norma::lab {

/// The factors of the recipe's learning rate in a sweep.
std::vector<double> tuning_factors();

/// Steps of each trial: a fifth of the run's, but at least 20, and at most the run's.
int64_t tuning_steps(int64_t run_steps);
/// The same number in batches; `accumulate` batches make a step.
int64_t tuning_batches(int64_t run_batches, int64_t accumulate);

/// Makes the parts of a schedule that are counted in epochs (warm-up, cool-down, time between two decays) those of a
/// run with this share of the steps. Milestones stay: they are whole epochs.
void shorten_schedule(train::Recipe& recipe, double share);

/// The mean over the last quarter of a trial's losses (rounded down, at least one). Expects a loss or more.
double final_loss(const std::vector<double>& losses);

/// Makes the trials that comparison.tunings lacks, and writes the report after each, until interrupted() (interrupt.h).
/// They follow their cells' recipe, with a schedule as short as they are and the first seed, and never use the test
/// images. A trial that throws, as for a loss that is not finite, is a result.
void tune_rates(Comparison& comparison, const ComparisonOptions& options);

/// True iff no trial is missing.
bool tuning_is_complete(const Comparison& comparison);

}  // namespace norma::lab

#pragma once

#include "train/recipe.h"

namespace norma::train {

/// Throws Error "resume: name: the run was started with …, and cannot go on with …" for the first thing that makes
/// `now` another run than `before`: the network with its norms, convolutions and start values, the dataset, the size of
/// the batches and how many make an update, the optimizer, whether weights are averaged, the seed and the precision.
/// What only steers the steps to come may change: length, learning rate and its schedule, augmentation, regularisation.
void check_same_run(const Recipe& before, const Recipe& now);

}  // namespace norma::train

#pragma once

#include "train/recipe.h"

#include <cstdint>
#include <string_view>

namespace norma::train {

/// Throws Error "resume: name: the run was started with …, and cannot go on with …" for the first thing that makes
/// `now` another run than `before`: the network with its norms, convolutions and start values, the dataset, the size of
/// the batches and how many make an update, the optimizer, whether weights are averaged, the seed and the precision.
/// What only steers the steps to come may change: length, learning rate and its schedule, augmentation, regularisation.
void check_same_run(const Recipe& before, const Recipe& now);

/// Throws Error "resume: …" where all `steps` of a run are done and `now` differs from `before` in what only steps to
/// come could heed.
void check_changes_count(const Recipe& before, const Recipe& now, int64_t steps);

/// Throws Error of `op` where the images that a checkpoint names are not there, as may be from another folder, unless
/// `now` names others: "op: data-dir: there is no 'photos', as the checkpoint has it: --data-dir says where it is".
void check_data_dir(std::string_view op, const Recipe& of_checkpoint, const Recipe& now);

}  // namespace norma::train

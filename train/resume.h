#pragma once

#include "train/recipe.h"

#include <cstdint>
#include <string_view>

namespace norma::train {

/// Throws Error "resume: name: the run was started with …, and cannot go on with …" for the first option that makes
/// `now` another run than `before`: the network with its norms, convolutions and start values, the dataset, the size of
/// the batches and their number in an update, the optimizer, whether weights are averaged, the seed and the precision.
/// Options that only steer the steps to come may change: length, learning rate and its schedule, augmentation,
/// regularisation.
void check_same_run(const Recipe& before, const Recipe& now);

/// Throws Error "resume: …" if all `steps` of a run are done and `now` has changes that only further steps could
/// follow.
void check_changes_count(const Recipe& before, const Recipe& now, int64_t steps);

/// Throws Error of `op` if the folder of images in a checkpoint does not exist, for example when run from another
/// folder, unless `now` names another: "op: data-dir: there is no 'photos', as the checkpoint has it: --data-dir says
/// where it is".
void check_data_dir(std::string_view op, const Recipe& of_checkpoint, const Recipe& now);

}  // namespace norma::train

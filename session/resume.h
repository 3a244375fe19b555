#pragma once

#include "train/training_state.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace norma::train {

/// Throws Error "resume: name: the run was started with …, and cannot go on with …" for the first option that makes
/// `now` another run than `before`: the network with its norms, convolutions and start values, the dataset, the size of
/// the batches and their number in an update, the optimizer, whether weights are averaged, the seed and the precision.
/// Options that only steer the steps to come may change: length, learning rate and its schedule, augmentation,
/// regularization.
void check_same_run(const Recipe& before, const Recipe& now);

/// Throws Error "resume: …" if all `steps` of a run are done and `now` has changes that only further steps could
/// follow.
void check_changes_count(const Recipe& before, const Recipe& now, int64_t steps);

/// Throws Error of `op` if the folder of images in a checkpoint does not exist, for example when run from another
/// folder, unless `now` names another: "op: data-dir: there is no 'photos', as the checkpoint has it: --data-dir says
/// where it is".
void check_data_dir(std::string_view op, const Recipe& of_checkpoint, const Recipe& now);

/// Goes on from a checkpoint: TrainingState::resume(), which returns the change of the number of images. Throws Error
/// also as check_same_run() and check_changes_count() do, where the checkpoint has the recipe of its run.
std::string resume_run(TrainingState& run, const Checkpoint& checkpoint);

/// "8e-09 → 0.0016" if the rate of the next step is more than twice what the schedule of `before`, as the run was until
/// now, has there or at its end; else "".
std::string rate_jump(const TrainingState& run, const Recipe& before);

/// What has to be the same in all processes of a run: a line each, "name<tab>value". Version, libraries, byte order,
/// step, recipe, and the SHA-256 of the weights and of some images.
std::string facts_of(const TrainingState& run);
/// The first line of `other` that differs from `first`: "--lr: expected 0.1, as rank 0 has, got 0.2"; "" if none does.
std::string difference_of_facts(const std::string& first, const std::string& other);
/// Throws Error, in all processes of a run, where the facts of one differ from those of the first.
void check_processes_agree(const TrainingState& run);

}  // namespace norma::train

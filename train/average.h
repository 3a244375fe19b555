#pragma once

#include "train/checkpoint.h"
#include "train/run_folder.h"

#include <cstdint>
#include <filesystem>
#include <vector>

namespace norma::train {

/// What the averages of checkpoints keep, in Checkpoint::options, of the files that they were made of.
inline constexpr const char* kAveragedKey = "averaged";

/// The checkpoints of a run's folder with the highest metric, the best first, of equal ones that of the earlier step;
/// each step once, whatever names it has. Throws Error where there are less than `count` that were evaluated.
std::vector<CheckpointFile> best_checkpoints(const std::filesystem::path& folder, int64_t count);

/// The mean of the weights in these files, summed in float64 and rounded once, as timm's avg_checkpoints.py makes it;
/// of integers (num_batches_tracked) the values of the newest file, that of the latest step, or the last one given
/// where they have no steps. `which` as in load_weights(). The result has the newest checkpoint's description, but no
/// optimizer, averages or metric: it can be evaluated, and not resumed. Of files with weights alone it has no
/// description either, and its step is -1.
/// Throws Error "average: FILE: tensor 'x': …" for the first tensor that another file has not, or has otherwise, and
/// for one that is not finite.
Checkpoint average_checkpoints(const std::vector<std::filesystem::path>& files, Weights which);

}  // namespace norma::train

#pragma once

#include "train/checkpoint.h"

#include <filesystem>
#include <vector>

namespace norma::train {

/// The key in Checkpoint::options under which an averaged checkpoint lists its files.
inline constexpr const char* kAveragedKey = "averaged";

/// The mean of the weights in these files, summed in float64 and rounded once, as timm's avg_checkpoints.py does it.
/// Integers (num_batches_tracked) come from the newest file: that of the latest step, or the last one given if the
/// files have no steps. `options` as in load_weights(). The result has the newest checkpoint's description, but no
/// optimizer, averages or metric: it can be evaluated, but not resumed. Averaged files of weights alone give no
/// description, and step -1.
/// Throws Error "average: FILE: tensor 'x': …" for the first tensor that another file lacks or has with other sizes or
/// dtype, and for one that is not finite.
Checkpoint average_checkpoints(const std::vector<std::filesystem::path>& files, const WeightsOptions& options = {});

}  // namespace norma::train

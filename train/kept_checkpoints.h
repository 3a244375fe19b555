#pragma once

#include "train/checkpoint.h"

#include <cstdint>
#include <filesystem>

namespace norma::train {

/// Which checkpoints a run keeps beside last.safetensors, which has the newest one.
struct KeepOptions {
  bool best = false;              ///< model_best.safetensors: the weights that were best on the test images
  int64_t history = 1;            ///< so many of the best as checkpoint-EPOCH (1: none), and of the newest recovery-…
  int64_t recovery_interval = 0;  ///< steps of the run from one recovery checkpoint to the next; 0: none
};

// A file is removed only when the one that takes its place is on the disk. What these functions do is the same however
// often it is done again, so a run may be killed at any moment.

/// Removes recovery-… but for the newest KeepOptions::history: also before a run goes on, as a kill may have come
/// before.
void remove_old_recovery(const std::filesystem::path& folder, const KeepOptions& options);

/// Writes recovery-EPOCH-STEP.safetensors, the epochs done and the step in the next one, and removes those of earlier
/// steps as remove_old_recovery(). Throws Error.
void save_recovery(const std::filesystem::path& folder, const KeepOptions& options, const Checkpoint& checkpoint,
                   int64_t step_in_epoch);

/// For weights that have just been evaluated, with Checkpoint::metric and best: writes last.safetensors, to which
/// model_best.safetensors is another name if they are the best ones, and checkpoint-EPOCH.safetensors. Of these the
/// KeepOptions::history with the highest metric stay, of equal ones the earlier. Throws Error.
void save_evaluated(const std::filesystem::path& folder, const KeepOptions& options, const Checkpoint& checkpoint,
                    int64_t epoch);

}  // namespace norma::train

#pragma once

#include "train/checkpoint.h"
#include "train/folder_lock.h"
#include "train/training_state.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>

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

struct TrainerOptions;

/// The output folder of a run while it trains: its checkpoints, and the files that say how to start it again. No other
/// process writes there meanwhile, and nothing is written any more once the folder was moved. Without a folder
/// (TrainerOptions::output) nothing is written at all. Both arguments live longer than this.
class RunOutput {
 public:
  /// Takes the lock of the folder. Throws Error when another process has it, and when checkpoints of another run would
  /// be written over.
  RunOutput(TrainingState& run, const TrainerOptions& options);

  /// Begins a stage of TrainerOptions::before_stage. Before one that writes, throws Error unless the folder is where it
  /// was.
  void enter(std::string_view stage) const;
  /// Writes args.toml and the cast policy. Throws Error rather than to write over files of another kind.
  void write_settings() const;
  /// Whether last.safetensors is whole and of this step; true where no files are written.
  [[nodiscard]] bool has_last() const;
  /// Writes last.safetensors, unless that was done after this step. Throws Error for a network that is not finite, as
  /// the next two: an earlier checkpoint is worth more.
  void save();
  void save_for_recovery() const;
  /// After an evaluation of that accuracy: keeps the best checkpoints, where KeepOptions::best asks for it.
  void keep_evaluated(double accuracy) const;

 private:
  [[nodiscard]] bool is_there() const { return lock_ != nullptr; }
  void write(const std::function<void(const Checkpoint&)>& save) const;

  TrainingState& run_;
  const TrainerOptions& options_;
  std::shared_ptr<const FolderLock> lock_;
  int64_t saved_step_ = -1;
};

}  // namespace norma::train

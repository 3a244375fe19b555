#pragma once

#include "session/output.h"
#include "train/checkpoint.h"
#include "train/training_state.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::train {

// The checkpoints of a run's folder, by timm's names: last.safetensors, model_best.safetensors,
// checkpoint-EPOCH.safetensors and recovery-EPOCH-STEP.safetensors.

inline constexpr std::string_view kLastName = "last.safetensors";
inline constexpr std::string_view kBestName = "model_best.safetensors";
inline constexpr std::string_view kEpochPrefix = "checkpoint-";
inline constexpr std::string_view kRecoveryPrefix = "recovery-";

/// A checkpoint, as its metadata describes it.
struct CheckpointFile {
  std::filesystem::path path;
  int64_t step = 0;
  std::optional<double> metric = {};  ///< accuracy on the test images, in [0, 1]; none: not evaluated
};

struct RunFolder {
  std::vector<CheckpointFile> whole;  ///< later steps first; for one step last.safetensors first
  /// Other files of such names, half-written or of another kind, and their errors.
  std::map<std::filesystem::path, std::string> broken;
};

/// Reads the metadata of all checkpoints in a folder, not their tensors; a folder that does not exist has none.
RunFolder read_run_folder(const std::filesystem::path& folder);

/// The checkpoint of the latest step in a folder, which a run resumes. Without any it is last.safetensors, so that
/// reading it gives the error. `warnings` gets a text for each half-written file, which is passed over. Throws Error
/// for one that cannot be opened or is of another version or kind: it may be the newest.
std::filesystem::path newest_checkpoint(const std::filesystem::path& folder, std::vector<std::string>& warnings);

/// The checkpoints of a run's folder with the highest metric, best first; of equal ones the earlier step first. Each
/// step comes once, whatever names it has. Throws Error if fewer than `count` were evaluated.
std::vector<CheckpointFile> best_checkpoints(const std::filesystem::path& folder, int64_t count);

/// Call it before a run at `step` writes its checkpoints into `folder`. Throws Error "train: …" when they would replace
/// others. If `resumed`, the checkpoint that the run resumes, lies in the folder, the folder may hold checkpoints up to
/// `step`; otherwise none.
void check_checkpoints_are_kept(const std::filesystem::path& folder, const std::filesystem::path& resumed,
                                int64_t step);

/// The checkpoints that a run keeps beside last.safetensors, which has the newest one.
struct KeepOptions {
  bool best = false;              ///< model_best.safetensors: the weights that were best on the test images
  int64_t history = 1;            ///< the number of best ones kept as checkpoint-EPOCH (1: none), and of newest
                                  ///< recovery-…
  int64_t recovery_interval = 0;  ///< steps of the run from one recovery checkpoint to the next; 0: none
};

// A file is removed only when its replacement is on the disk. Repeating these functions changes nothing, so a run may
// be killed at any moment.

/// Removes all recovery-… except the newest KeepOptions::history. Called before a resumed run goes on, too, since a
/// kill may have prevented it.
void remove_old_recovery(const std::filesystem::path& folder, const KeepOptions& options);

/// Writes recovery-EPOCH-STEP.safetensors (the epochs done and the step in the next one), and removes older ones as
/// remove_old_recovery() does. Throws Error.
void save_recovery(const std::filesystem::path& folder, const KeepOptions& options, const Checkpoint& checkpoint,
                   int64_t step_in_epoch);

/// Call it with weights just evaluated, with Checkpoint::metric and best. Writes last.safetensors;
/// model_best.safetensors becomes another name (a link) of it if the weights are the best. With KeepOptions::history
/// above 1 so does checkpoint-EPOCH.safetensors, and as many checkpoint-… with the highest metric stay; of equal ones
/// the earlier. Throws Error.
void save_evaluated(const std::filesystem::path& folder, const KeepOptions& options, const Checkpoint& checkpoint,
                    int64_t epoch);

struct TrainerOptions;

/// The output folder of a run while it trains: its checkpoints, and the files to start it again. No other process
/// writes there meanwhile, and nothing is written once the folder was moved. Without a folder (TrainerOptions::output)
/// nothing is written at all. Both arguments must outlive it.
class RunOutput {
 public:
  /// Takes the lock of the folder. Throws Error when another process has it, and when checkpoints of another run would
  /// be overwritten.
  RunOutput(TrainingState& run, const TrainerOptions& options);

  /// Begins a stage of TrainerOptions::before_stage. Before a stage that writes, throws Error unless the folder is in
  /// its place.
  void enter(std::string_view stage) const;
  /// Writes args.toml and the cast policy. Throws Error if they would replace files of another kind.
  void write_settings() const;
  /// True iff last.safetensors is whole and of this step, or no files are written.
  [[nodiscard]] bool has_last() const;
  /// Writes last.safetensors, unless that was done after this step. Throws Error for a network that is not finite, as
  /// the next two do, to keep an earlier checkpoint.
  void save();
  void save_for_recovery() const;
  /// Call it after an evaluation of that accuracy: keeps the best checkpoints with KeepOptions::best.
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

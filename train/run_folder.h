#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
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

/// A checkpoint as its metadata describes it.
struct CheckpointFile {
  std::filesystem::path path;
  int64_t step = 0;
  std::optional<double> metric = {};  ///< its accuracy on the test images, in [0, 1]; none: it was not evaluated
};

struct RunFolder {
  std::vector<CheckpointFile> whole;  ///< those of later steps first; of one step, last.safetensors first
  /// Other files of such names, half-written or of another kind, with what is wrong with them.
  std::map<std::filesystem::path, std::string> broken;
};

/// Reads the heads of all checkpoints in a folder; a folder that is not there has none. Their tensors are not read.
RunFolder read_run_folder(const std::filesystem::path& folder);

/// The checkpoint of the latest step in a folder: what a run goes on from. Where there is none, last.safetensors, so
/// that reading it says what is wrong. `warnings` gets a text for each half-written file, which is passed over. Throws
/// Error for one that cannot be opened or is of another version or kind: it may be the newest.
std::filesystem::path newest_checkpoint(const std::filesystem::path& folder, std::vector<std::string>& warnings);

/// Before a run at `step` writes its checkpoints into `folder`: throws Error "train: …" when they would take the place
/// of others. The folder may hold checkpoints of no later step where `resumed`, the checkpoint that the run goes on
/// from, lies in it, and none otherwise.
void check_checkpoints_are_kept(const std::filesystem::path& folder, const std::filesystem::path& resumed,
                                int64_t step);

}  // namespace norma::train

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

/// Call it before a run at `step` writes its checkpoints into `folder`. Throws Error "train: …" when they would replace
/// others. If `resumed`, the checkpoint that the run resumes, lies in the folder, the folder may hold checkpoints up to
/// `step`; otherwise none.
void check_checkpoints_are_kept(const std::filesystem::path& folder, const std::filesystem::path& resumed,
                                int64_t step);

}  // namespace norma::train

#include "train/kept_checkpoints.h"

#include "data/atomic_file.h"
#include "train/run_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <system_error>
#include <vector>

namespace norma::train {

namespace {

/// Removes the checkpoints of a folder whose names begin so, but for the first `count` in an order. One that cannot be
/// read is nobody's to remove.
void keep_first(const std::filesystem::path& folder, std::string_view prefix, int64_t count,
                const std::function<bool(const CheckpointFile&, const CheckpointFile&)>& before) {
  std::vector<CheckpointFile> files;
  for (const CheckpointFile& checkpoint : read_run_folder(folder).whole) {
    if (checkpoint.path.filename().string().starts_with(prefix)) {
      files.push_back(checkpoint);
    }
  }
  std::sort(files.begin(), files.end(), before);
  for (size_t i = static_cast<size_t>(count); i < files.size(); ++i) {
    std::error_code stays;
    std::filesystem::remove(files[i].path, stays);
  }
}

}  // namespace

void remove_old_recovery(const std::filesystem::path& folder, const KeepOptions& options) {
  keep_first(folder, kRecoveryPrefix, options.history,
             [](const CheckpointFile& a, const CheckpointFile& b) { return a.step > b.step; });
}

void save_recovery(const std::filesystem::path& folder, const KeepOptions& options, const Checkpoint& checkpoint,
                   int64_t step_in_epoch) {
  save_checkpoint(folder / fmt::format("{}{}-{}.safetensors", kRecoveryPrefix, checkpoint.epoch, step_in_epoch),
                  checkpoint);
  remove_old_recovery(folder, options);
}

void save_evaluated(const std::filesystem::path& folder, const KeepOptions& options, const Checkpoint& checkpoint,
                    int64_t epoch) {
  const std::filesystem::path last = folder / kLastName;
  save_checkpoint(last, checkpoint);
  if (checkpoint.best && checkpoint.best->step == checkpoint.step) {
    data::link_file("checkpoint", last, folder / kBestName);
  }
  if (options.history > 1) {
    data::link_file("checkpoint", last, folder / fmt::format("{}{}.safetensors", kEpochPrefix, epoch));
    keep_first(folder, kEpochPrefix, options.history, [](const CheckpointFile& a, const CheckpointFile& b) {
      return a.metric != b.metric ? a.metric > b.metric : a.step < b.step;
    });
  }
}

}  // namespace norma::train

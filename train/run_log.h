#pragma once

#include "nn/module.h"
#include "train/log_file.h"
#include "train/log_row.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>

namespace norma::train {

struct RunLogOptions {
  std::filesystem::path folder;        ///< where the files go
  std::filesystem::path earlier = {};  ///< folder of the run that goes on, which may be the same
  int64_t last_step = 0;               ///< of that run's checkpoint: what comes later is done again; 0: a new run
  bool evaluated = false;              ///< the row of last_step counts with test figures only
  int64_t steps_per_epoch = 1;
  bool ended = false;                       ///< last_step is the last of the run, which may be inside an epoch
  bool averaged_weights = false;            ///< metrics.csv has columns for their figures
  bool json = false;                        ///< write log.jsonl; also where `earlier` has one
  const nn::Module* tensorboard = nullptr;  ///< write an event file, which shows the weights of this network's norms
};

/// True iff the logs of a folder have an epoch that was finished, or the end of a run.
bool has_finished_epoch(const std::filesystem::path& folder);

/// The logs of a run in its folder. metrics.csv has every row. summary.csv has those where an epoch ends, under timm's
/// columns. log.jsonl has both, as objects with "type" "metrics" or "epoch"; "epoch" is the epochs done in both. The
/// event file for TensorBoard begins with the first row. A run that goes on continues the first three without a row
/// twice or a row lost, wherever it was killed, and begins another event file.
class RunLog {
 public:
  /// Throws Error that names the file when one cannot be written, or is there and not of a training run, and Error when
  /// the folder has logs of a run that does not go on here and has finished an epoch.
  explicit RunLog(const RunLogOptions& options);
  /// True iff all that belongs to last_step was written before.
  [[nodiscard]] bool has_last_step() const { return has_last_step_; }
  /// Every row is on the disk when it returns. `before_file` is called before each file gets its row.
  void write(const LogRow& row, const std::function<void()>& before_file = {});

 private:
  /// Curves, and after an evaluation how the weights of the norms are spread.
  void write_event(const LogRow& row);

  std::filesystem::path folder_;
  std::span<const LogColumn> columns_;  // of metrics.csv
  bool has_last_step_ = false;
  std::optional<LogFile> metrics_;
  std::optional<LogFile> summary_;
  std::optional<LogFile> json_;
  const nn::Module* tensorboard_;
  int64_t events_from_;  // the first step that the event file has to say something of
  std::optional<EventFile> events_;
};

}  // namespace norma::train

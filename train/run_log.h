#pragma once

#include "train/log_file.h"
#include "train/metrics_log.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

namespace norma::train {

/// One row of summary.csv, with timm's names and units.
struct EpochSummary {
  int64_t epoch = 0;      ///< from 0
  int64_t step = 0;       ///< steps done at its end
  double train_loss = 0;  ///< mean over its steps; NaN where all were left out
  std::optional<double> eval_loss = {};
  std::optional<double> eval_top1 = {};  ///< in percent
  std::optional<double> eval_top5 = {};  ///< likewise
  double lr = 0;                         ///< of its last step
};

struct RunLogOptions {
  std::filesystem::path folder;        ///< where the files go
  std::filesystem::path earlier = {};  ///< folder of the run that goes on, which may be the same
  int64_t last_step = 0;               ///< of that run's checkpoint: what comes later is done again; 0: a new run
  bool evaluated = false;              ///< the row of last_step counts with test figures only
  int64_t steps_per_epoch = 1;
  bool ended = false;  ///< last_step is the last of the run, which may be inside an epoch
  MetricsColumns columns = MetricsColumns::plain;
  bool json = false;  ///< write log.jsonl; also where `earlier` has one
};

/// True iff the logs of a folder have an epoch that was finished, or the end of a run.
bool has_finished_epoch(const std::filesystem::path& folder);

/// The logs of a run in its folder. metrics.csv (MetricsLog): a row per interval and per evaluation. summary.csv: a row
/// per epoch under timm's columns, epoch,train_loss,eval_loss,eval_top1,eval_top5,lr. log.jsonl: each of those rows as
/// a JSON object in a line of its own, "type" is "metrics" or "epoch", "epoch" the epochs done in both; numbers that
/// are not finite are null. A run that goes on continues all of them, without a row twice or a row lost, wherever it
/// was killed.
class RunLog {
 public:
  /// Throws Error that names the file when one cannot be written, or is there and not of a training run, and Error when
  /// the folder has logs of a run that does not go on here and has finished an epoch.
  explicit RunLog(const RunLogOptions& options);
  /// True iff all that belongs to last_step was written before.
  [[nodiscard]] bool has_last_step() const { return metrics_->has_last_step(); }
  /// `epoch`: where one ends with this row. `before_file` is called before each file gets its row.
  void write(const Metrics& metrics, const std::optional<EpochSummary>& epoch,
             const std::function<void()>& before_file = {});

 private:
  std::optional<MetricsLog> metrics_;
  std::optional<LogFile> summary_;
  std::optional<LogFile> json_;
};

}  // namespace norma::train

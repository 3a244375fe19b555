#pragma once

#include "train/log_file.h"

#include <cstdint>
#include <filesystem>
#include <optional>

namespace norma::train {

/// One row of the log.
struct Metrics {
  int64_t step = 0;    ///< steps done
  double epoch = 0;    ///< epochs done, with fractions
  int64_t images = 0;  ///< images seen
  double lr = 0;
  double loss = 0;  ///< mean over the steps since the row before; NaN where all were left out
  double images_per_second = 0;
  std::optional<double> test_loss = {};  ///< where the model was evaluated
  std::optional<double> test_accuracy = {};
  std::optional<double> ema_test_loss = {};  ///< of the averaged weights, in a log with columns for them
  std::optional<double> ema_test_accuracy = {};
  std::optional<int64_t> left_out = {};  ///< steps left out so far; in log.jsonl, for Recipe::skip_nonfinite
};

/// What a log begins with when a run goes on.
struct EarlierRows {
  std::filesystem::path file = {};  ///< of the rows; one that is not there has none
  int64_t last_step = 0;            ///< rows of later steps are left out: those steps are done again
  bool evaluated = false;           ///< the row of last_step counts with test figures only
};

/// What columns a log has.
enum class MetricsColumns {
  plain,
  ema  ///< two more, for the figures of averaged weights
};

/// True iff a file of that name is such a log and has a row from behind the first epoch, or of an evaluation.
bool has_finished_epoch_row(const std::filesystem::path& file);

/// A CSV file of what happened during training. Every row is on the disk when write() returns.
class MetricsLog {
 public:
  /// Starts the file with the whole rows of an earlier one, which may be the same file.
  /// Throws Error that names the file when it cannot be written.
  explicit MetricsLog(const std::filesystem::path& file, const EarlierRows& earlier = {},
                      MetricsColumns columns = MetricsColumns::plain);
  void write(const Metrics& metrics);
  /// True iff there was an earlier row of EarlierRows::last_step.
  [[nodiscard]] bool has_last_step() const { return has_last_step_; }

 private:
  MetricsColumns columns_;
  std::optional<LogFile> file_;
  bool has_last_step_ = false;
};

}  // namespace norma::train

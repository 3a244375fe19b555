#pragma once

#include "nn/module.h"
#include "session/output.h"
#include "train/evaluate.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace norma::train {

/// The CRC-32C (Castagnoli, polynomial 0x1EDC6F41 reflected) of bytes.
uint32_t crc32c(std::string_view bytes);

/// An event file that TensorBoard reads: records of TFRecord (length, its masked CRC-32C, bytes, their masked CRC-32C),
/// each a protocol buffer `Event` of TensorBoard's event.proto and summary.proto. Every event is on the disk when the
/// call returns.
class EventFile {
 public:
  /// Starts a new file, "events.out.tfevents.<seconds>.<process>.norma", in an existing folder; its name sorts after
  /// all others there, whatever the clock says. `first_step`: TensorBoard drops the points of this step and later ones
  /// in earlier files of the folder; 0: none. Throws Error that names the file when it cannot be written, as the other
  /// functions do.
  explicit EventFile(const std::filesystem::path& folder, int64_t first_step = 0);

  using Scalars = std::vector<std::pair<std::string, double>>;
  /// Adds one point to each curve: tag and value, kept as float32.
  void add_scalars(int64_t step, const Scalars& scalars);
  /// Adds the counts of values in 30 equal intervals from the smallest to the largest. Values that are not finite are
  /// left out; if no others remain, there is no event.
  void add_histogram(int64_t step, std::string_view tag, std::span<const float> values);

  [[nodiscard]] const std::filesystem::path& file() const { return path_; }

 private:
  void write(const std::string& event);

  std::filesystem::path path_;
  OpenFile file_;
};

/// The figures that a run logs after a step: at every interval, after every evaluation, and at the end of every epoch.
struct LogRow {
  int64_t step = 0;    ///< steps done
  double epoch = 0;    ///< epochs done, with fractions
  int64_t images = 0;  ///< images seen
  double lr = 0;       ///< learning rate of the step
  double loss = 0;     ///< mean over the steps since the row before; NaN if all were left out
  double images_per_second = 0;
  Evaluation test = {};                   ///< incomplete: the network was not evaluated
  Evaluation ema_test = {};               ///< likewise with averaged weights
  std::optional<int64_t> left_out = {};   ///< steps left out so far, for Recipe::skip_nonfinite
  std::optional<double> epoch_loss = {};  ///< mean over the steps of the epoch that ends here; NaN if all were left out
};

/// A text file that grows by lines. The system has each line when add() returns.
class LogFile {
 public:
  /// Replaces the file, if there is one, by these lines: by all of them, or it stays as it was. Throws Error that names
  /// it when it cannot be written, as add() does.
  LogFile(std::string op, std::filesystem::path file, const std::vector<std::string>& lines);
  void add(const std::string& line);

 private:
  std::string op_;
  std::filesystem::path path_;
  OpenFile file_;
};

struct RunLogOptions {
  std::filesystem::path folder;        ///< folder of the files
  std::filesystem::path earlier = {};  ///< folder of the resumed run, which may be the same
  bool resumed = false;                ///< also with last_step 0: a signal came before the first step
  int64_t last_step = 0;               ///< of that run's checkpoint: later steps are done again; 0: none
  bool evaluated = false;              ///< the row of last_step counts only with test figures
  int64_t steps_per_epoch = 1;
  bool ended = false;                       ///< last_step is the last of the run, which may be inside an epoch
  bool averaged_weights = false;            ///< metrics.csv has columns for their figures
  bool json = false;                        ///< write log.jsonl; also where `earlier` has one
  const nn::Module* tensorboard = nullptr;  ///< write an event file, with the weights of this network's norms
  std::function<void()> before_file = {};   ///< called before each file gets a row or an object
};

/// True iff the logs of a folder show a finished epoch, or the end of a run.
bool has_finished_epoch(const std::filesystem::path& folder);

/// The logs of a run in its folder. metrics.csv has every row. summary.csv has a row at the end of each epoch, under
/// timm's columns. log.jsonl has both, as objects with "type" "metrics" or "epoch"; "epoch" is the epochs done in both.
/// It also has the objects of note(). One with "at" "end" is removed when its run is resumed, which writes it again at
/// the end. The event file for TensorBoard begins with the first row. A resumed run continues the first three files
/// without a repeated or lost row, wherever it was killed, and begins another event file.
class RunLog {
 public:
  /// Throws Error that names the file when one cannot be written, or exists and is not of a training run, and Error
  /// when the folder has logs of another run that has finished an epoch.
  explicit RunLog(const RunLogOptions& options);
  /// True iff all rows of last_step were written before.
  [[nodiscard]] bool has_last_step() const { return has_last_step_; }
  /// Writes a row; it is on the disk when this returns.
  void write(const LogRow& row);
  /// Writes an object to log.jsonl, if there is one, that is no row; as JSON text on one line, with "type" and "step".
  void note(const std::string& json);

 private:
  void add(std::optional<LogFile>& file, const std::string& line);
  /// Writes the points of curves and, after an evaluation, histograms of the norms' weights.
  void write_event(const LogRow& row);

  RunLogOptions options_;
  bool has_last_step_ = false;
  std::optional<LogFile> metrics_;
  std::optional<LogFile> summary_;
  std::optional<LogFile> json_;
  std::optional<EventFile> events_;
};

}  // namespace norma::train

#pragma once

#include "nn/module.h"
#include "train/log_row.h"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace norma::train {

/// The lines of a log that may have been cut while it was written, without a last line that has no end. None for a file
/// that does not exist. Throws Error "op: …" for one that cannot be read.
std::vector<std::string> whole_lines(std::string_view op, const std::filesystem::path& file);

/// A text file that grows by lines. The system has each line when add() returns.
class LogFile {
 public:
  /// Replaces the file, if there is one, by these lines: by all of them, or it stays as it was. Throws Error that names
  /// it when it cannot be written, as add() does.
  LogFile(std::string op, std::filesystem::path file, const std::vector<std::string>& lines);
  void add(const std::string& line);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  std::string op_;
  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

struct RunLogOptions {
  std::filesystem::path folder;        ///< folder of the files
  std::filesystem::path earlier = {};  ///< folder of the resumed run, which may be the same
  int64_t last_step = 0;               ///< of that run's checkpoint: later steps are done again; 0: a new run
  bool evaluated = false;              ///< the row of last_step counts only with test figures
  int64_t steps_per_epoch = 1;
  bool ended = false;                       ///< last_step is the last of the run, which may be inside an epoch
  bool averaged_weights = false;            ///< metrics.csv has columns for their figures
  bool json = false;                        ///< write log.jsonl; also where `earlier` has one
  const nn::Module* tensorboard = nullptr;  ///< write an event file, with the weights of this network's norms
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
  /// Writes a row; it is on the disk when this returns. `before_file` is called before each file gets its row.
  void write(
      const LogRow& row, const std::function<void()>& before_file = [] {});
  /// Writes an object to log.jsonl, if there is one, that is no row; as JSON text on one line, with "type" and "step".
  void note(
      const std::string& json, const std::function<void()>& before_file = [] {});

 private:
  /// Writes the points of curves and, after an evaluation, histograms of the norms' weights.
  void write_event(const LogRow& row);

  std::filesystem::path folder_;
  std::span<const LogColumn> columns_;  // of metrics.csv
  bool has_last_step_ = false;
  std::optional<LogFile> metrics_;
  std::optional<LogFile> summary_;
  std::optional<LogFile> json_;
  const nn::Module* tensorboard_;
  int64_t events_from_;  // the first step that the event file must cover
  std::optional<EventFile> events_;
};

}  // namespace norma::train

#pragma once

#include "train/evaluate.h"
#include "train/progress.h"
#include "train/run_log.h"
#include "train/run_output.h"
#include "train/training_state.h"
#include "train/training_step.h"

#include <memory>
#include <optional>
#include <string>

namespace norma::train {

struct TrainResult;

/// The reports of a run: its evaluations, the rows of its log, and the printed lines. All arguments must outlive it.
class RunReports {
 public:
  /// Opens the log, or continues the checkpoint's. Throws Error as RunLog does.
  RunReports(TrainingState& run, const TrainerOptions& options, RunOutput& output);

  /// Prints a line that stays.
  void print(const std::string& text) { progress_.print(text); }
  /// Evaluates the network before the first step, and prints its accuracy.
  void print_start();
  /// Writes an object to log.jsonl (RunLog::note()).
  void note(const std::string& json);
  /// True iff notes are kept or lines are printed.
  [[nodiscard]] bool are_read() const;
  /// True iff the run ended between a checkpoint and the row of its step.
  [[nodiscard]] bool row_is_missing() const;
  /// Shows the last step, and counts its loss for the rows to come.
  void add(const StepResult& step, double images_per_second);
  /// Makes the evaluation and the row of the log for this step, unless a signal came: then resuming makes them.
  void report(TrainResult& result, double images_per_second);
  /// Evaluates the network and the averaged weights, if there are any. False: a signal came first.
  bool evaluate_into(TrainResult& result);
  /// Prints notes at the end of the run: steps that were left out, images that were replaced.
  void print_notes();

 private:
  [[nodiscard]] bool evaluation_is_due() const;
  [[nodiscard]] bool row_is_due() const;
  Evaluation evaluate_averages();

  TrainingState& run_;
  const TrainerOptions& options_;
  RunOutput& output_;
  Progress progress_;
  std::optional<RunLog> log_;
  std::shared_ptr<nn::Module> ema_model_;  // for evaluating the averages; made at the first use
};

}  // namespace norma::train

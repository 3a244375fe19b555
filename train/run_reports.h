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

/// What a run tells: its evaluations, the rows of its log, and what is printed. All arguments live longer than this.
class RunReports {
 public:
  /// Opens the log, or goes on with that of the checkpoint. Throws Error as RunLog.
  RunReports(TrainingState& run, const TrainerOptions& options, RunOutput& output);

  /// Prints a line that stays.
  void print(const std::string& text) { progress_.print(text); }
  /// Whether the run ended between a checkpoint and the row of its step.
  [[nodiscard]] bool row_is_missing() const;
  /// Shows the step that was just made, and counts its loss for the rows to come.
  void add(const StepResult& step, double images_per_second);
  /// The evaluation and the row of the log that belong to this step, unless a signal came: resuming does it then.
  void report(TrainResult& result, double images_per_second);
  /// Evaluates the network and, where there are any, the averaged weights. False: a signal came first.
  bool evaluate_into(TrainResult& result);
  /// Prints what is to be said at the end of the run: steps that were left out, images that were replaced.
  void print_notes();

 private:
  [[nodiscard]] bool evaluation_is_due() const;
  [[nodiscard]] bool row_is_due() const;
  Evaluation evaluate_network(nn::Module& model) const;
  Evaluation evaluate_averages();

  TrainingState& run_;
  const TrainerOptions& options_;
  RunOutput& output_;
  Progress progress_;
  std::optional<RunLog> log_;
  std::shared_ptr<nn::Module> ema_model_;  // what the averages are evaluated in; made when they are
};

}  // namespace norma::train

#include "train/trainer.h"

#include "core/allocator.h"
#include "core/error.h"
#include "train/dataset_notes.h"
#include "train/environment.h"
#include "train/interrupt.h"
#include "train/output.h"
#include "train/progress.h"
#include "train/ranges.h"
#include "train/run_folder.h"
#include "train/run_output.h"
#include "train/run_reports.h"
#include "train/step_times.h"
#include "train/training_step.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <utility>

namespace norma::train {

namespace {

TrainerOptions checked(TrainerOptions options) {
  check_range("train", "workers", options.workers, ranges::kWorkers);
  check(options.log_interval >= 0, "train", "log-interval: expected at least 0, got {}", options.log_interval);
  return options;
}

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// What is to be said at the end of a run.
void print_notes(const TrainingState& run, const TrainerOptions& options, Progress& progress) {
  if (run.left_out > 0) {
    progress.print(options.labelled(
        fmt::format("{} of {} steps left out, whose loss or gradients were not finite", run.left_out, run.step)));
  }
  if (run.overflows > 0) {
    progress.print(
        options.labelled(fmt::format("{} step{} left out, whose gradients overflowed in float16; the loss scale is {}",
                                     run.overflows, run.overflows == 1 ? " was" : "s were", run.scaler->factor())));
  }
  for (const auto& dataset : {run.train_set, run.test_set}) {
    if (const std::string text = skipped_text(*dataset); !text.empty()) {
      progress.warn("norma: train: warning: " + options.labelled(text));
    }
  }
}

/// A run from where it is to its end, or until a signal comes.
class TrainingLoop {
 public:
  TrainingLoop(TrainingState& run, const TrainerOptions& options)
      : run_(run),
        options_(options),
        output_(run, options),
        reports_(run, options, output_),
        faults_(run),
        progress_({.label = options.label,
                   .total_steps = run.total_steps(),
                   .first_step = run.step,
                   .log_interval = options.log_interval,
                   .quiet = options.quiet,
                   .time_after = options.time_after}) {}

  TrainResult run();

 private:
  void make_steps(TrainResult& result);
  /// Says how a step went.
  void show(const StepResult& step, double images_per_second);

  TrainingState& run_;
  const TrainerOptions& options_;
  RunOutput output_;
  RunReports reports_;
  StepFaults faults_;
  Progress progress_;
  ResidentPeak resident_;
};

TrainResult TrainingLoop::run() {
  const double start = seconds_now();
  output_.write_settings();
  TrainResult result;
  result.total_steps = run_.total_steps();
  result.parameters = run_.model->parameter_count();
  run_.model->train();
  Allocator& memory = allocator(run_.model->device());
  memory.reset_peak();
  if (const std::string text = empty_classes_text(run_.test_set->info()); !text.empty()) {
    progress_.print(text);
  }
  if (run_.step == run_.total_steps() && !output_.has_last()) {  // it goes on from another checkpoint, and makes none
    output_.save();
  }
  if (reports_.row_is_missing()) {
    reports_.report(result, progress_, /* images_per_second= */ 0);
  }
  if (run_.step < run_.total_steps() && !interrupted()) {
    faults_.explain_memory(options_.workers, !options_.resumed.empty(), [&] { make_steps(result); });
  }
  if (options_.evaluate && !interrupted() && !result.test.complete) {  // a run that was complete but for its evaluation
    reports_.evaluate_into(result);
  }
  if (interrupted()) {
    output_.save();
  }
  print_notes(run_, options_, progress_);
  result.best = run_.best;
  result.step = run_.step;
  result.left_out = run_.left_out;
  result.finished = run_.step == run_.total_steps() && (result.test.complete || !options_.evaluate);
  result.peak_bytes = memory.statistics().peak_allocated;
  result.peak_resident = resident_.bytes();
  result.seconds = seconds_now() - start;
  return result;
}

void TrainingLoop::make_steps(TrainResult& result) {
  data::Loader loader =
      make_train_loader(run_.recipe, run_.train_set, options_.workers, run_.plan.batches_before(run_.step));
  StepObserver* const observer = options_.observer.get();
  if (observer != nullptr) {
    observer->start({.model = *run_.model,
                     .first_step = run_.step,
                     .total_steps = run_.total_steps(),
                     .batch_size = run_.recipe.batch_size * run_.recipe.grad_accum_steps});
  }
  double waited = 0;  // of the step, for its batches
  const auto load = [&] {
    const double start = options_.now();
    std::optional<data::Batch> batch = loader.next();
    waited += options_.now() - start;
    return batch;
  };
  StepTimes times(options_.workers);
  bool warned = false;
  double step_start = options_.now();
  while (run_.step < run_.total_steps()) {
    waited = 0;
    std::optional<data::Batch> first = load();
    output_.enter("step");
    const int64_t batches = run_.plan.batches_of(run_.step);
    const StepResult step = train_step(
        run_, faults_, batches, [&] { return first ? *std::exchange(first, std::nullopt) : load().value(); }, observer);
    ++run_.step;
    const double seconds = options_.now() - step_start;

    times.add(batches * run_.recipe.batch_size, seconds, waited);
    if (const auto rates = times.bottleneck(); rates && !std::exchange(warned, true)) {
      progress_.print(loading_warning(*rates, options_.workers));
    }
    if (observer != nullptr && step.outcome == StepOutcome::updated) {
      observer->end_step(run_.step, step.loss, seconds);
    }
    resident_.sample();  // the allocator keeps what a step has freed, so the end of a step shows its peak
    result.losses.push_back(step.loss);
    reports_.add(step);
    const double recent = times.recent_images_per_second();
    show(step, recent);

    if (run_.epoch_ends() || interrupted()) {
      output_.save();  // before the evaluation, which may take long
    } else if (options_.keep.recovery_interval > 0 && run_.step % options_.keep.recovery_interval == 0) {
      output_.save_for_recovery();
    }
    reports_.report(result, progress_, recent);
    if (interrupted()) {
      break;
    }
    step_start = options_.now();
  }
  result.images_per_second = times.images_per_second();
}

void TrainingLoop::show(const StepResult& step, double images_per_second) {
  if (step.outcome == StepOutcome::left_out) {
    progress_.print(fmt::format("step {}: the loss is {}, {}; left out ({} so far)", run_.step, step.loss,
                                std::isfinite(step.loss) ? "and a gradient is not finite" : "not finite",
                                run_.left_out));
  }
  progress_.update({.step = run_.step, .images_per_second = images_per_second, .loss = step.loss});
}

}  // namespace

std::string TrainerOptions::labelled(const std::string& text) const {
  return label.empty() ? text : fmt::format("{}  {}", label, text);
}

double TrainerOptions::now() const {
  return clock ? clock() : seconds_now();
}

Trainer::Trainer(Recipe recipe, TrainerOptions options)
    : options_(checked(std::move(options))), state_(std::move(recipe)) {
  if (!options_.output.empty()) {
    make_output_folder("train", options_.output);
  }
}

Trainer::Trainer(Recipe recipe, TrainerOptions options, const Checkpoint& checkpoint)
    : Trainer(std::move(recipe), std::move(options)) {
  images_change_ = state_.resume(checkpoint);
}

std::filesystem::path Trainer::checkpoint_file() const {
  return options_.output.empty() ? std::filesystem::path() : options_.output / kLastName;
}

TrainResult Trainer::run() {
  return TrainingLoop(state_, options_).run();
}

}  // namespace norma::train

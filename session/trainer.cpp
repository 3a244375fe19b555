#include "session/trainer.h"

#include "base/error.h"
#include "core/allocator.h"
#include "data/json.h"
#include "session/environment.h"
#include "session/interrupt.h"
#include "session/progress.h"
#include "session/resume.h"
#include "session/run_log.h"
#include "train/checkpoint.h"
#include "train/freeze.h"
#include "train/processes.h"
#include "train/recipe_option.h"
#include "train/training_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace norma::train {

namespace {

TrainerOptions checked(TrainerOptions options) {
  check_range("train", "workers", options.workers, ranges::kWorkers);
  check_range("train", "checkpoint-hist", options.keep.history, ranges::kCheckpointHist);
  check(options.log_interval >= 0, "train", "log-interval: expected at least 0, got {}", options.log_interval);
  return options;
}

/// A run around the loop: it prints, logs, saves and evaluates. Both arguments must outlive it.
class ObservedLoop final : public LoopObserver {
 public:
  /// Takes the folder, and opens the log or continues the checkpoint's. Throws Error as RunOutput and RunLog do.
  ObservedLoop(TrainingState& run, const TrainerOptions& options);

  TrainResult train();

  void before_step() override { output_.enter("step"); }
  void after_step(const StepEvent& step) override;
  void note(const std::string& text) override { progress_.print(text); }

 private:
  void begin();
  void end();
  /// Tells of the weights that the run begins with, and of frozen ones.
  void tell_of_start();
  void start_step_observer();
  /// Throws Error, in all processes, where a frozen tensor has changed in one.
  void check_frozen() const;

  [[nodiscard]] bool evaluation_is_due() const;
  [[nodiscard]] bool row_is_due() const;
  /// True iff the run ended between a checkpoint and the row of its step.
  [[nodiscard]] bool row_is_missing() const;
  /// Shows the last step, and counts its loss for the rows to come.
  void count(const StepResult& step, double images_per_second);
  /// Makes the evaluation and the row of the log for this step, unless a signal came: then resuming makes them.
  void report(double images_per_second);
  /// Evaluates the network and the averaged weights, if there are any. False: a signal came first.
  bool evaluate();
  /// Evaluates the network before the first step, and prints its accuracy.
  void print_start();
  /// Prints notes at the end of the run: steps that were left out, images that were replaced.
  void print_notes();
  /// The text after the label of the run.
  [[nodiscard]] std::string labelled(const std::string& text) const {
    return options_.label.empty() ? text : fmt::format("{}  {}", options_.label, text);
  }
  /// Prints a line about the run that stays.
  void say(const std::string& text) { progress_.print(labelled(text)); }
  /// Writes an object to log.jsonl (RunLog::note()).
  void log(const std::string& json);

  TrainingState& run_;
  const TrainerOptions& options_;
  RunOutput output_;
  Progress progress_;
  std::optional<RunLog> log_;
  StepFaults faults_;
  StepTimes times_;
  bool warned_ = false;  // of slow loading
  ResidentPeak resident_;
  std::shared_ptr<nn::Module> ema_model_;  // for evaluating the averages; made at the first use
  TrainResult result_;
};

ObservedLoop::ObservedLoop(TrainingState& run, const TrainerOptions& options)
    : run_(run),
      options_(options),
      output_(run, options),
      progress_({.label = options.label,
                 .total_steps = run.total_steps(),
                 .first_step = run.step,
                 .log_interval = options.log_interval,
                 .quiet = options.quiet,
                 .time_after = options.time_after}),
      faults_(run),
      times_(options.workers) {
  if (!options.output.empty()) {
    log_.emplace(RunLogOptions{.folder = options.output,
                               .earlier = options.resumed.parent_path(),
                               .resumed = !options.resumed.empty(),
                               .last_step = run.step,
                               .evaluated = evaluation_is_due(),
                               .steps_per_epoch = run.steps_per_epoch(),
                               .ended = run.step == run.total_steps(),
                               .averaged_weights = run.recipe.model_ema,
                               .json = options.log_json || !run.frozen.empty() || !run.initial.empty(),
                               .tensorboard = options.tensorboard ? run.model.get() : nullptr,
                               .before_file = [this] { output_.enter("log"); }});
    run.row_written = log_->has_last_step();
  }
}

TrainResult ObservedLoop::train() {
  const double start = system_seconds();
  begin();
  if (run_.step < run_.total_steps() && !interrupted()) {
    faults_.explain_memory(options_.workers, !options_.resumed.empty(), [this] {
      result_.graph_steps = train_loop(run_, faults_,
                                       {.workers = options_.workers,
                                        .cuda_graph = options_.cuda_graph,
                                        .steps = options_.observer.get(),
                                        .clock = [this] { return options_.now(); }},
                                       *this);
    });
  }
  end();
  result_.seconds = system_seconds() - start;
  return std::move(result_);
}

void ObservedLoop::begin() {
  if (run_.step == 0 && options_.resumed.empty() && run_.processes.group().is_first() && (log_ || !options_.quiet)) {
    tell_of_start();
  }
  check_processes_agree(run_);
  run_.processes.start(run_);
  output_.write_settings();
  result_.total_steps = run_.total_steps();
  result_.parameters = run_.model->parameter_count();
  run_.model->train();
  allocator(run_.model->device()).reset_peak();
  if (const std::string text = empty_classes_text(run_.test_set->info()); !text.empty()) {
    progress_.print(text);
  }
  if (!run_.initial.empty() && run_.recipe.convert_norm != Recipe{}.convert_norm && options_.evaluate) {
    print_start();
  }
  if (run_.step == run_.total_steps() && !output_.has_last()) {  // resumed from a file elsewhere, it would write no
                                                                 // checkpoint
    output_.save();
  }
  start_step_observer();
  if (of_first(run_.processes.group(), row_is_missing())) {
    report(/* images_per_second= */ 0);
  }
}

void ObservedLoop::after_step(const StepEvent& step) {
  times_.add(step.images, step.seconds, step.waited);
  if (const auto rates = times_.bottleneck(); rates && !std::exchange(warned_, true)) {
    progress_.print(loading_warning(*rates, options_.workers));
  }
  if (options_.observer) {
    step.result.outcome == StepOutcome::updated
        ? options_.observer->end_step(run_.step, step.result.loss, step.seconds)
        : options_.observer->left_out_step(run_.step, step.result.loss, step.seconds);
  }
  resident_.sample();  // the allocator keeps freed memory, so the end of a step shows its peak
  result_.losses.push_back(step.result.loss);
  const double recent = times_.recent_images_per_second();
  count(step.result, recent);

  const bool ends = run_.epoch_ends() || interrupted();
  const bool recovers = options_.keep.recovery_interval > 0 && run_.step % options_.keep.recovery_interval == 0;
  if (ends || recovers) {
    if (const std::string drift = run_.processes.average_statistics(run_); !drift.empty()) {
      progress_.print(drift);
    }
    check_frozen();
    ends ? output_.save() : output_.save_for_recovery();  // before the evaluation, which may take long
  }
  report(recent);
}

void ObservedLoop::end() {
  result_.images_per_second = times_.images_per_second();
  if (options_.evaluate && !interrupted() && !result_.test.complete) {  // a complete run without its evaluation
    evaluate();
  }
  check_frozen();
  if (interrupted()) {
    output_.save();
  } else if (!run_.frozen.empty()) {
    log(fmt::format(R"({{"type": "frozen", "at": "end", "step": {}, "sha256": {}}})", run_.step, run_.frozen.json()));
  }
  print_notes();
  result_.best = run_.best;
  result_.step = run_.step;
  result_.left_out = run_.left_out;
  result_.finished = run_.step == run_.total_steps() && (result_.test.complete || !options_.evaluate);
  result_.peak_bytes = allocator(run_.model->device()).statistics().peak_allocated;
  result_.peak_resident = resident_.bytes();
}

void ObservedLoop::tell_of_start() {
  if (!run_.initial.empty()) {
    log(fmt::format(R"({{"type": "start", "step": 0, "initial_checkpoint": {}}})",
                    data::json_text(nlohmann::json(run_.initial))));
  }
  if (run_.frozen.empty()) {
    return;
  }
  const std::string text = frozen_text(*run_.model);
  const FreezeSavings savings = measure_freeze_savings(run_);
  say(text);
  say(to_string(savings));
  log(fmt::format(R"({{"type": "frozen", "at": "start", "step": 0, "sha256": {}, "text": {}, "saved": {}}})",
                  run_.frozen.json(), data::json_text(nlohmann::json(text)), to_json(savings)));
}

void ObservedLoop::start_step_observer() {
  if (options_.observer) {
    options_.observer->start({.model = *run_.model,
                              .first_step = run_.step,
                              .total_steps = run_.total_steps(),
                              .batch_size = run_.recipe.batch_size * run_.recipe.grad_accum_steps,
                              .optimizer = run_.optimizer.get(),
                              .loss_of_first_batch = [this] { return loss_of_first_batch(run_); },
                              .print = [this](const std::string& text) { say(text); }});
  }
}

void ObservedLoop::check_frozen() const {
  do_together(run_.processes.group(), [this] { run_.frozen.check(run_); });
}

bool ObservedLoop::evaluation_is_due() const {
  return options_.evaluate &&
         (run_.step == run_.total_steps() || (options_.evaluate_each_epoch && run_.step % run_.steps_per_epoch() == 0));
}

bool ObservedLoop::row_is_due() const {
  return run_.epoch_ends() || (options_.log_interval > 0 && run_.step % options_.log_interval == 0);
}

bool ObservedLoop::row_is_missing() const {
  return (run_.row_loss.steps > 0 || run_.left_out_in_row > 0) && !run_.row_written;
}

void ObservedLoop::count(const StepResult& step, double images_per_second) {
  if (std::exchange(run_.row_written, false)) {
    run_.row_loss = {};
  }
  if ((run_.step - 1) % run_.steps_per_epoch() == 0) {
    run_.epoch_loss = {};
  }
  if (step.outcome != StepOutcome::left_out) {
    run_.row_loss.add(step.loss);
    run_.epoch_loss.add(step.loss);
  } else {
    progress_.print(fmt::format("step {}: the loss is {}, {}; left out ({} so far)", run_.step, step.loss,
                                std::isfinite(step.loss) ? "and a gradient is not finite" : "not finite",
                                run_.left_out));
  }
  progress_.update({.step = run_.step, .images_per_second = images_per_second, .loss = step.loss});
}

void ObservedLoop::report(double images_per_second) {
  LogRow row{.step = run_.step,
             .epoch = static_cast<double>(run_.step) / static_cast<double>(run_.steps_per_epoch()),
             .images = run_.images_seen(),
             .lr = run_.lr(run_.step - 1),
             .loss = run_.row_loss.value(),
             .images_per_second = images_per_second};
  if (evaluation_is_due()) {
    if (interrupted()) {
      return;
    }
    output_.enter("evaluate");
    if (!evaluate()) {
      return;
    }
    row.test = result_.test;
    row.ema_test = result_.ema_test;
    output_.keep_evaluated((run_.ema ? row.ema_test : row.test).accuracy);
    const std::string ema_text = run_.ema ? fmt::format("; with averaged weights {:.2f} %, {:.4f}",
                                                        100 * row.ema_test.accuracy, row.ema_test.loss)
                                          : "";
    say(fmt::format("after {} images: test accuracy {:.2f} %, test loss {:.4f}{}", row.images, 100 * row.test.accuracy,
                    row.test.loss, ema_text));
  }
  if (!row_is_due()) {
    return;
  }
  run_.row_written = true;
  if (run_.recipe.skip_nonfinite) {
    row.left_out = run_.left_out;
  }
  if (run_.epoch_ends()) {
    row.epoch_loss = run_.epoch_loss.value();
  }
  if (log_) {
    log_->write(row);
  }
}

bool ObservedLoop::evaluate() {
  const Evaluation test = evaluate_on_test_images(run_, *run_.model, options_.workers);
  if (!test.complete) {
    return false;
  }
  Evaluation ema_test;
  if (run_.ema) {
    if (!ema_model_) {
      ema_model_ = make_model(run_.recipe, run_.train_set->info().num_classes(), /* initialize= */ false);
    }
    load_averages(run_, *ema_model_);
    ema_test = evaluate_on_test_images(run_, *ema_model_, options_.workers);
    if (!ema_test.complete) {
      return false;
    }
  }
  result_.test = test;
  result_.ema_test = ema_test;
  if (options_.observer) {
    options_.observer->evaluated(run_.step, test);
  }
  return true;
}

void ObservedLoop::print_start() {
  const Evaluation test = evaluate_on_test_images(run_, *run_.model, options_.workers);
  if (test.complete) {
    say(fmt::format("before training: test accuracy {:.2f} %, test loss {:.4f}", 100 * test.accuracy, test.loss));
  }
}

void ObservedLoop::print_notes() {
  if (run_.left_out > 0) {
    say(fmt::format("{} of {} steps left out, whose loss or gradients were not finite", run_.left_out, run_.step));
  }
  if (run_.overflows > 0) {
    say(fmt::format("{} step{} left out, whose gradients overflowed in float16; the loss scale is {}", run_.overflows,
                    run_.overflows == 1 ? " was" : "s were", run_.scaler->factor()));
  }
  for (const auto& dataset : {run_.train_set, run_.test_set}) {
    if (const std::string text = skipped_text(*dataset); !text.empty()) {
      progress_.warn("norma: train: warning: " + labelled(text));
    }
  }
}

void ObservedLoop::log(const std::string& json) {
  if (log_) {
    log_->note(json);
  }
}

/// Seconds to load the images of a step, measured with a loader whose batches nobody computes with; 0 if the run has
/// too few of them to tell.
double loading_seconds(data::Loader& loader, const TrainerOptions& options, int64_t batches_of_step) {
  const int64_t batches = prefetched_batches(options.workers);
  for (int64_t i = 0; i < batches; ++i) {  // batches that are ready or half done
    loader.next();
  }
  const double start = options.now();
  int64_t loaded = 0;
  while (loaded < batches && loader.next()) {
    ++loaded;
  }
  return loaded == 0 ? 0 : (options.now() - start) * static_cast<double>(batches_of_step) / static_cast<double>(loaded);
}

int64_t evaluations_left(const TrainingState& run, const TrainerOptions& options) {
  if (!options.evaluate) {
    return 0;
  }
  if (!options.evaluate_each_epoch) {
    return 1;
  }
  const int64_t epochs_left = run.total_steps() / run.steps_per_epoch() - run.step / run.steps_per_epoch();
  return epochs_left + (run.total_steps() % run.steps_per_epoch() == 0 ? 0 : 1);
}

}  // namespace

double TrainerOptions::now() const {
  return clock ? clock() : system_seconds();
}

Trainer::Trainer(Recipe recipe, TrainerOptions options) : Trainer(std::move(recipe), std::move(options), false) {}

Trainer::Trainer(Recipe recipe, TrainerOptions options, bool resumed)
    : options_(checked(std::move(options))), state_(std::move(recipe), options_.group, resumed) {
  state_.notes = checkpoint_notes();
  if (!options_.output.empty()) {
    make_output_folder("train", options_.output);
  }
}

Trainer::Trainer(Recipe recipe, TrainerOptions options, const Checkpoint& checkpoint)
    : Trainer(std::move(recipe), std::move(options), /* resumed= */ true) {
  images_change_ = resume_run(state_, checkpoint);
  if (checkpoint.options.contains(kRecipeKey) && state_.step < state_.total_steps()) {
    rate_jump_ = train::rate_jump(state_, recipe_of(checkpoint));
  }
}

std::filesystem::path Trainer::checkpoint_file() const {
  return options_.output.empty() ? std::filesystem::path() : options_.output / kLastName;
}

Evaluation Trainer::evaluate_fit(int64_t images) {
  return evaluate_on_training_images(state_, *state_.model, images, options_.workers);
}

Evaluation Trainer::evaluate_test() {
  return evaluate_on_test_images(state_, *state_.model, options_.workers);
}

void Trainer::take_averages(int64_t batches) {
  const std::shared_ptr<nn::Module> averaged =
      make_model(in_full_precision(state_.recipe), state_.train_set->info().num_classes(), /* initialize= */ false);
  load_averages(state_, *averaged);
  if (batches > 0) {
    freeze(*averaged, state_.recipe);  // frozen statistics stay as they are
    data::Loader loader = make_train_loader(state_.recipe, state_.train_set, options_.workers, /* first_step= */ 0,
                                            averaged->device(), state_.processes.part());
    recalibrate(*averaged, loader, batches);
  }
  state_.model->load_state_dict(averaged->state_dict());
  state_.processes.average_statistics(state_);
}

TrainResult Trainer::run() {
  return ObservedLoop(state_, options_).train();
}

DryRun Trainer::dry_run() {
  constexpr int64_t kFirstSteps = 2;
  constexpr int64_t kTimedSteps = 3;
  constexpr int64_t kTestBatches = 2;
  TrainingState& run = state_;
  const Recipe& recipe = run.recipe;
  DryRun result;
  result.steps_left = run.total_steps() - run.step;
  result.images_per_step = recipe.batch_size * recipe.grad_accum_steps;
  result.evaluations = evaluations_left(run, options_);
  result.workers = options_.workers;
  run.model->train();
  Allocator& memory = allocator(run.model->device());
  memory.reset_peak();
  ActivationObserver seen(*run.model);
  data::Loader loader = make_train_loader(recipe, run.train_set, options_.workers, run.plan.batches_before(run.step),
                                          run.model->device());
  std::vector<double> seconds;
  std::vector<double> computing;
  double waited = 0;
  const auto next = [&] {
    const double start = options_.now();
    data::Batch batch = loader.next().value();
    waited += options_.now() - start;
    return batch;
  };
  StepFaults faults(run);
  faults.explain_memory(options_.workers, !options_.resumed.empty(), [&] {
    const int64_t first = run.step;
    for (; run.step < std::min(first + kFirstSteps + kTimedSteps, run.total_steps()); ++run.step) {
      StepObserver* const observer = run.step == first ? &seen : nullptr;  // its work does not count as time
      waited = 0;
      const double start = options_.now();
      train_step(run, faults, run.plan.batches_of(run.step), next, observer);
      (run.step - first < kFirstSteps ? result.first_steps : result.timed_steps) += 1;
      seconds.push_back(options_.now() - start);
      computing.push_back(seconds.back() - waited);
    }
    run.step = first;
    result.peak_bytes = memory.statistics().peak_allocated;
    result.loading_seconds = loading_seconds(loader, options_, recipe.grad_accum_steps);
  });
  if (result.timed_steps > 0) {
    seconds.erase(seconds.begin(), seconds.begin() + result.first_steps);
    computing.erase(computing.begin(), computing.begin() + result.first_steps);
  } else {
    std::swap(result.first_steps, result.timed_steps);
  }
  if (result.loading_seconds == 0) {
    result.step_seconds = median(seconds);
  } else if (result.workers == 0) {
    result.step_seconds = median(computing) + result.loading_seconds;
  } else {
    result.step_seconds = std::max(median(computing), result.loading_seconds);
  }
  result.memory = memory_use(*run.model, *run.optimizer, run.ema);
  result.memory.images = recipe.batch_size;
  result.memory.activations = seen.activations();

  const int64_t test_images = test_images_of(recipe, *run.test_set);
  Recipe part = recipe;
  part.test_images = std::min(test_images, kTestBatches * recipe.batch_size);
  data::Loader batches = make_test_loader(part, run.test_set, options_.workers, run.model->device());
  const Evaluation evaluation = evaluate(*run.model, batches, run.precision);
  result.evaluation_seconds = evaluation.seconds * static_cast<double>(test_images) /
                              static_cast<double>(std::max<int64_t>(evaluation.images, 1)) * (run.ema ? 2 : 1);
  result.seconds = result.step_seconds * static_cast<double>(result.steps_left) +
                   result.evaluation_seconds * static_cast<double>(result.evaluations);
  return result;
}

}  // namespace norma::train

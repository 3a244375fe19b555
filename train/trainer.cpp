#include "train/trainer.h"

#include "core/allocator.h"
#include "core/error.h"
#include "data/json.h"
#include "train/agreement.h"
#include "train/batch_feed.h"
#include "train/dataset_notes.h"
#include "train/environment.h"
#include "train/freeze.h"
#include "train/interrupt.h"
#include "train/output.h"
#include "train/ranges.h"
#include "train/recalibrate.h"
#include "train/run_evaluation.h"
#include "train/run_folder.h"
#include "train/run_output.h"
#include "train/run_reports.h"
#include "train/step_times.h"
#include "train/training_step.h"

#include <fmt/format.h>

#include <chrono>
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

/// Runs the steps from the present one to the end, or until a signal comes.
class TrainingLoop {
 public:
  TrainingLoop(TrainingState& run, const TrainerOptions& options)
      : run_(run), options_(options), output_(run, options), reports_(run, options, output_), faults_(run) {}

  TrainResult run();

 private:
  void start_observer();
  void make_steps(TrainResult& result);
  /// Tells of the weights that the run begins with, and of frozen ones.
  void tell_of_start();
  /// Throws Error, in all processes, where a frozen tensor has changed in one.
  void check_frozen() const;
  /// The maker of graphs, or none, as TrainerOptions::cuda_graph and the run will have it.
  std::optional<StepGraph> make_graph();

  TrainingState& run_;
  const TrainerOptions& options_;
  RunOutput output_;
  RunReports reports_;
  StepFaults faults_;
  ResidentPeak resident_;
};

TrainResult TrainingLoop::run() {
  const double start = seconds_now();
  if (run_.step == 0 && run_.processes.group().is_first() && reports_.are_read()) {
    tell_of_start();
  }
  run_.processes.start(run_);
  output_.write_settings();
  TrainResult result;
  result.total_steps = run_.total_steps();
  result.parameters = run_.model->parameter_count();
  run_.model->train();
  Allocator& memory = allocator(run_.model->device());
  memory.reset_peak();
  if (const std::string text = empty_classes_text(run_.test_set->info()); !text.empty()) {
    reports_.print(text);
  }
  if (!run_.initial.empty() && run_.recipe.convert_norm != Recipe{}.convert_norm && options_.evaluate) {
    reports_.print_start();
  }
  if (run_.step == run_.total_steps() && !output_.has_last()) {  // resumed from a file elsewhere, it would write no
                                                                 // checkpoint
    output_.save();
  }
  start_observer();
  if (of_first(run_.processes.group(), reports_.row_is_missing())) {
    reports_.report(result, /* images_per_second= */ 0);
  }
  if (run_.step < run_.total_steps() && !interrupted()) {
    faults_.explain_memory(options_.workers, !options_.resumed.empty(), [&] { make_steps(result); });
  }
  if (options_.evaluate && !interrupted() && !result.test.complete) {  // a complete run without its evaluation
    reports_.evaluate_into(result);
  }
  check_frozen();
  if (interrupted()) {
    output_.save();
  } else if (!run_.frozen.empty()) {
    reports_.note(
        fmt::format(R"({{"type": "frozen", "at": "end", "step": {}, "sha256": {}}})", run_.step, run_.frozen.json()));
  }
  reports_.print_notes();
  result.best = run_.best;
  result.step = run_.step;
  result.left_out = run_.left_out;
  result.finished = run_.step == run_.total_steps() && (result.test.complete || !options_.evaluate);
  result.peak_bytes = memory.statistics().peak_allocated;
  result.peak_resident = resident_.bytes();
  result.seconds = seconds_now() - start;
  return result;
}

void TrainingLoop::tell_of_start() {
  if (!run_.initial.empty()) {
    reports_.note(fmt::format(R"({{"type": "start", "step": 0, "initial_checkpoint": {}}})",
                              data::json_text(nlohmann::json(run_.initial))));
  }
  if (run_.frozen.empty()) {
    return;
  }
  const std::string text = frozen_text(*run_.model);
  const FreezeSavings savings = measure_freeze_savings(run_);
  if (!options_.quiet) {
    reports_.print(options_.labelled(text));
    reports_.print(options_.labelled(to_string(savings)));
  }
  reports_.note(fmt::format(R"({{"type": "frozen", "at": "start", "step": 0, "sha256": {}, "text": {}, "saved": {}}})",
                            run_.frozen.json(), data::json_text(nlohmann::json(text)), to_json(savings)));
}

void TrainingLoop::check_frozen() const {
  do_together(run_.processes.group(), [&] { run_.frozen.check(run_); });
}

void TrainingLoop::start_observer() {
  if (!options_.observer) {
    return;
  }
  options_.observer->start({.model = *run_.model,
                            .first_step = run_.step,
                            .total_steps = run_.total_steps(),
                            .batch_size = run_.recipe.batch_size * run_.recipe.grad_accum_steps,
                            .optimizer = run_.optimizer.get(),
                            .loss_of_first_batch = [this] { return loss_of_first_batch(run_); },
                            .print =
                                [this](const std::string& text) {
                                  if (!options_.quiet) {
                                    reports_.print(options_.labelled(text));
                                  }
                                }});
}

void TrainingLoop::make_steps(TrainResult& result) {
  data::Loader loader =
      make_train_loader(run_.recipe, run_.train_set, options_.workers, run_.plan.batches_before(run_.step),
                        run_.model->device(), run_.processes.part());
  StepObserver* const observer = options_.observer.get();
  double waited = 0;  // in this step, for the loader
  const auto load = [&] {
    const double start = options_.now();
    std::optional<data::Batch> batch = loader.next();
    waited += options_.now() - start;
    return batch;
  };
  BatchFeed feed(load, run_.model->device());
  struct SendNext {
    SendNext(StepFaults& of_run, BatchFeed& feed) : steps(of_run) {
      steps.set_before_waiting([&feed] { feed.send_next(); });
    }
    ~SendNext() { steps.set_before_waiting(nullptr); }
    StepFaults& steps;
  };
  const SendNext send_next(faults_, feed);
  std::optional<StepGraph> graph = make_graph();
  StepTimes times(options_.workers);
  bool warned = false;
  double step_start = options_.now();
  while (run_.step < run_.total_steps()) {
    waited = 0;
    std::optional<data::Batch> first = feed.next();
    output_.enter("step");
    const int64_t batches = run_.plan.batches_of(run_.step);
    const auto next = [&] { return first ? *std::exchange(first, std::nullopt) : feed.next().value(); };
    const StepResult step = graph ? graph->step(batches, next) : train_step(run_, faults_, batches, next, observer);
    ++run_.step;
    if (const std::string news = graph ? graph->take_news() : ""; !news.empty() && !options_.quiet) {
      reports_.print(news);
    }
    const double seconds = options_.now() - step_start;

    times.add(batches * run_.recipe.batch_size, seconds, waited);
    if (const auto rates = times.bottleneck(); rates && !std::exchange(warned, true)) {
      reports_.print(loading_warning(*rates, options_.workers));
    }
    if (observer != nullptr) {
      step.outcome == StepOutcome::updated ? observer->end_step(run_.step, step.loss, seconds)
                                           : observer->left_out_step(run_.step, step.loss, seconds);
    }
    resident_.sample();  // the allocator keeps freed memory, so the end of a step shows its peak
    result.losses.push_back(step.loss);
    const double recent = times.recent_images_per_second();
    reports_.add(step, recent);

    if (graph && run_.epoch_ends()) {
      graph->release();
    }
    const bool recovers = options_.keep.recovery_interval > 0 && run_.step % options_.keep.recovery_interval == 0;
    if (run_.epoch_ends() || interrupted() || recovers) {
      if (const std::string drift = run_.processes.average_statistics(run_); !drift.empty() && !options_.quiet) {
        reports_.print(drift);
      }
    }
    if (run_.epoch_ends() || interrupted() || recovers) {
      check_frozen();
    }
    if (run_.epoch_ends() || interrupted()) {
      output_.save();  // before the evaluation, which may take long
    } else if (recovers) {
      output_.save_for_recovery();
    }
    reports_.report(result, recent);
    if (interrupted()) {
      break;
    }
    step_start = options_.now();
  }
  result.graph_steps = graph ? graph->launches() : 0;
  result.images_per_second = times.images_per_second();
}

std::optional<StepGraph> TrainingLoop::make_graph() {
  if (options_.cuda_graph == GraphMode::off) {
    return std::nullopt;
  }
  const std::string obstacle = StepGraph::obstacle(run_, options_.observer.get());
  if (obstacle.empty()) {
    return std::optional<StepGraph>(std::in_place, run_, faults_, options_.cuda_graph);
  }
  check(options_.cuda_graph != GraphMode::on, "train", "cuda-graph: expected steps that become a graph, but {}",
        obstacle);
  if (make_device_graph(run_.model->device()) != nullptr && !options_.quiet) {
    reports_.print(fmt::format("cuda-graph: off: {}", obstacle));
  }
  return std::nullopt;
}

}  // namespace

std::string TrainerOptions::labelled(const std::string& text) const {
  return label.empty() ? text : fmt::format("{}  {}", label, text);
}

double TrainerOptions::now() const {
  return clock ? clock() : seconds_now();
}

Trainer::Trainer(Recipe recipe, TrainerOptions options) : Trainer(std::move(recipe), std::move(options), false) {}

Trainer::Trainer(Recipe recipe, TrainerOptions options, bool resumed)
    : options_(checked(std::move(options))), state_(std::move(recipe), options_.group, resumed) {
  if (!options_.output.empty()) {
    make_output_folder("train", options_.output);
  }
}

Trainer::Trainer(Recipe recipe, TrainerOptions options, const Checkpoint& checkpoint)
    : Trainer(std::move(recipe), std::move(options), /* resumed= */ true) {
  images_change_ = state_.resume(checkpoint);
  if (checkpoint.options.contains(kRecipeKey) && state_.step < state_.total_steps()) {
    rate_jump_ = state_.rate_jump(recipe_of(checkpoint));
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
      make_model(in_full_precision(state_.recipe), state_.train_set->info().num_classes());
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
  return TrainingLoop(state_, options_).run();
}

}  // namespace norma::train

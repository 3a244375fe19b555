#include "train/run_reports.h"

#include "train/dataset_notes.h"
#include "train/interrupt.h"
#include "train/run_evaluation.h"
#include "train/trainer.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

namespace norma::train {

RunReports::RunReports(TrainingState& run, const TrainerOptions& options, RunOutput& output)
    : run_(run),
      options_(options),
      output_(output),
      progress_({.label = options.label,
                 .total_steps = run.total_steps(),
                 .first_step = run.step,
                 .log_interval = options.log_interval,
                 .quiet = options.quiet,
                 .time_after = options.time_after}) {
  if (!options.output.empty()) {
    log_.emplace(RunLogOptions{.folder = options.output,
                               .earlier = options.resumed.parent_path(),
                               .last_step = run.step,
                               .evaluated = evaluation_is_due(),
                               .steps_per_epoch = run.steps_per_epoch(),
                               .ended = run.step == run.total_steps(),
                               .averaged_weights = run.recipe.model_ema,
                               .json = options.log_json || !run.frozen.empty() || !run.initial.empty(),
                               .tensorboard = options.tensorboard ? run.model.get() : nullptr});
    run.row_written = log_->has_last_step();
  }
}

void RunReports::note(const std::string& json) {
  if (log_) {
    log_->note(json, [this] { output_.enter("log"); });
  }
}

bool RunReports::are_read() const {
  return log_ || !options_.quiet;
}

bool RunReports::evaluation_is_due() const {
  return options_.evaluate &&
         (run_.step == run_.total_steps() || (options_.evaluate_each_epoch && run_.step % run_.steps_per_epoch() == 0));
}

bool RunReports::row_is_due() const {
  return run_.epoch_ends() || (options_.log_interval > 0 && run_.step % options_.log_interval == 0);
}

bool RunReports::row_is_missing() const {
  return (run_.row_loss.steps > 0 || run_.left_out_in_row > 0) && !run_.row_written;
}

void RunReports::add(const StepResult& step, double images_per_second) {
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
    print(fmt::format("step {}: the loss is {}, {}; left out ({} so far)", run_.step, step.loss,
                      std::isfinite(step.loss) ? "and a gradient is not finite" : "not finite", run_.left_out));
  }
  progress_.update({.step = run_.step, .images_per_second = images_per_second, .loss = step.loss});
}

void RunReports::report(TrainResult& result, double images_per_second) {
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
    if (!evaluate_into(result)) {
      return;
    }
    row.test = result.test;
    row.ema_test = result.ema_test;
    output_.keep_evaluated((run_.ema ? row.ema_test : row.test).accuracy);
    const std::string ema_text = run_.ema ? fmt::format("; with averaged weights {:.2f} %, {:.4f}",
                                                        100 * row.ema_test.accuracy, row.ema_test.loss)
                                          : "";
    print(options_.labelled(fmt::format("after {} images: test accuracy {:.2f} %, test loss {:.4f}{}", row.images,
                                        100 * row.test.accuracy, row.test.loss, ema_text)));
  }
  if (!row_is_due()) {
    return;
  }
  run_.row_written = true;
  if (!log_) {
    return;
  }
  if (run_.recipe.skip_nonfinite) {
    row.left_out = run_.left_out;
  }
  if (run_.epoch_ends()) {
    row.epoch_loss = run_.epoch_loss.value();
  }
  log_->write(row, [this] { output_.enter("log"); });
}

bool RunReports::evaluate_into(TrainResult& result) {
  const Evaluation test = evaluate_on_test_images(run_, *run_.model, options_.workers);
  const Evaluation ema_test = test.complete && run_.ema ? evaluate_averages() : Evaluation();
  if (!test.complete || (run_.ema && !ema_test.complete)) {
    return false;
  }
  result.test = test;
  result.ema_test = ema_test;
  if (options_.observer) {
    options_.observer->evaluated(run_.step, test);
  }
  return true;
}

Evaluation RunReports::evaluate_averages() {
  if (!ema_model_) {
    ema_model_ = make_model(run_.recipe, run_.train_set->info().num_classes());
  }
  load_averages(run_, *ema_model_);
  return evaluate_on_test_images(run_, *ema_model_, options_.workers);
}

void RunReports::print_start() {
  const Evaluation test = evaluate_on_test_images(run_, *run_.model, options_.workers);
  if (test.complete) {
    print(options_.labelled(
        fmt::format("before training: test accuracy {:.2f} %, test loss {:.4f}", 100 * test.accuracy, test.loss)));
  }
}

void RunReports::print_notes() {
  if (run_.left_out > 0) {
    print(options_.labelled(
        fmt::format("{} of {} steps left out, whose loss or gradients were not finite", run_.left_out, run_.step)));
  }
  if (run_.overflows > 0) {
    print(
        options_.labelled(fmt::format("{} step{} left out, whose gradients overflowed in float16; the loss scale is {}",
                                      run_.overflows, run_.overflows == 1 ? " was" : "s were", run_.scaler->factor())));
  }
  for (const auto& dataset : {run_.train_set, run_.test_set}) {
    if (const std::string text = skipped_text(*dataset); !text.empty()) {
      progress_.warn("norma: train: warning: " + options_.labelled(text));
    }
  }
}

}  // namespace norma::train

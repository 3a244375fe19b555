#include "train/interrupt.h"
#include "train/trainer.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

// Of Trainer: evaluations, and the rows that the log has of a run.

namespace norma::train {

void Trainer::open_log() {
  log_.emplace(RunLogOptions{.folder = options_.output,
                             .earlier = options_.resumed.parent_path(),
                             .last_step = step_,
                             .evaluated = evaluation_is_due(),
                             .steps_per_epoch = steps_per_epoch_,
                             .ended = step_ == total_steps_,
                             .averaged_weights = recipe_.model_ema,
                             .json = options_.log_json,
                             .tensorboard = options_.tensorboard ? model_.get() : nullptr});
  row_written_ = log_->has_last_step();
}

void Trainer::add_to_rows(double loss) {
  if (std::exchange(row_written_, false)) {
    loss_sum_ = 0;
    loss_steps_ = 0;
  }
  if ((step_ - 1) % steps_per_epoch_ == 0) {
    epoch_loss_sum_ = 0;
    epoch_loss_steps_ = 0;
  }
  if (outcome_ != StepOutcome::left_out) {
    loss_sum_ += loss;
    ++loss_steps_;
    epoch_loss_sum_ += loss;
    ++epoch_loss_steps_;
  }
}

bool Trainer::evaluation_is_due() const {
  return options_.evaluate &&
         (step_ == total_steps_ || (options_.evaluate_each_epoch && step_ % steps_per_epoch_ == 0));
}

bool Trainer::row_is_due() const {
  return step_ == total_steps_ || step_ % steps_per_epoch_ == 0 ||
         (options_.log_interval > 0 && step_ % options_.log_interval == 0);
}

void Trainer::report_step(TrainResult& result, Progress& progress, double images_per_second) {
  Evaluation test;
  Evaluation ema_test;
  if (evaluation_is_due()) {
    if (interrupted()) {
      return;
    }
    enter("evaluate");
    if (!evaluate_into(result)) {
      return;
    }
    save_with_metric(result);
    test = result.test;
    ema_test = result.ema_test;
    const std::string ema_text =
        ema_ ? fmt::format("; with averaged weights {:.2f} %, {:.4f}", 100 * ema_test.accuracy, ema_test.loss) : "";
    progress.print(labelled(fmt::format("after {} images: test accuracy {:.2f} %, test loss {:.4f}{}", images_seen(),
                                        100 * test.accuracy, test.loss, ema_text)));
  }
  if (row_is_due()) {
    log(images_per_second, test, ema_test);
  }
}

void Trainer::log(double images_per_second, const Evaluation& test, const Evaluation& ema_test) {
  row_written_ = true;
  if (!log_) {
    return;
  }
  LogRow row{.step = step_,
             .epoch = static_cast<double>(step_) / static_cast<double>(steps_per_epoch_),
             .images = images_seen(),
             .lr = lr(step_ - 1),
             .loss = loss_sum_ / static_cast<double>(loss_steps_),
             .images_per_second = images_per_second,
             .test = test,
             .ema_test = ema_test,
             .left_out = recipe_.skip_nonfinite ? std::optional(left_out_) : std::nullopt};
  if (step_ == total_steps_ || step_ % steps_per_epoch_ == 0) {
    row.epoch_loss = epoch_loss_sum_ / static_cast<double>(epoch_loss_steps_);
  }
  log_->write(row, [this] { enter("log"); });
}

Evaluation Trainer::evaluate_now() {
  data::Loader batches = make_test_loader(recipe_, test_set_, options_.workers);
  return evaluate(*model_, batches, precision_);
}

Evaluation Trainer::evaluate_ema() {
  if (!ema_) {
    return {};
  }
  if (!ema_model_) {
    ema_model_ = make_model(recipe_, train_set_->info().num_classes());
  }
  // All steps so far may have been left out.
  ema_model_->load_state_dict(optimizer_->steps() > 0 ? ema_->averages() : wide_state());
  data::Loader batches = make_test_loader(recipe_, test_set_, options_.workers);
  return evaluate(*ema_model_, batches, precision_);
}

bool Trainer::evaluate_into(TrainResult& result) {
  const Evaluation test = evaluate_now();
  const Evaluation ema_test = test.complete ? evaluate_ema() : Evaluation();
  if (!test.complete || (ema_ && !ema_test.complete)) {
    return false;
  }
  result.test = test;
  result.ema_test = ema_test;
  if (options_.observer) {
    options_.observer->evaluated(step_, test);
  }
  return true;
}

}  // namespace norma::train

#include "core/copy.h"
#include "core/error.h"
#include "core/factory.h"
#include "core/random.h"
#include "core/tape.h"
#include "nn/optim/gradients.h"
#include "ops/optimizer/optimizer.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/view.h"
#include "train/trainer.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

// Of Trainer: steps whose loss or gradients are not finite.

namespace norma::train {

namespace {

/// Gradients that are infinite at this scale would be so without one.
constexpr double kLeastLossScale = 1e-6;

}  // namespace

std::pair<double, bool> Trainer::look_at(const Tensor& loss) const {
  const NoGradGuard no_grad;
  Tensors parameters = optimizer_->parameters();
  if (!steps_may_be_left_out() && !parameters.empty()) {
    // NaN that arises in backward reaches what lies before: the first layer shows it, at no cost.
    parameters = {model_->parameters().front()};
  }
  const Tensors gradients = nn::gradients_of(parameters);
  const Tensor both = zeros({2}, {.dtype = DType::float64, .device = loss.device()});
  copy_into(loss.detach(), select(both, 0, 0));
  if (!gradients.empty()) {  // in float64 no sum of squares of 32-bit numbers overflows
    copy_into(sum(sums_of_squares(gradients, loss.device())), select(both, 0, 1));
  }
  const std::vector<double> values = both.to_vector<double>();
  // The sign of a NaN is by chance, and would be printed.
  const double value = std::isnan(values[0]) ? std::numeric_limits<double>::quiet_NaN() : values[0];
  return {value, std::isfinite(values[1])};
}

void Trainer::take_back() {
  random_ = default_generator();
  if (steps_may_be_left_out()) {
    buffers_.put_back(*model_);
  }
  optimizer_->zero_grad();
}

void Trainer::leave_out_overflow() {
  const Generator before = random_;
  take_back();
  outcome_ = StepOutcome::overflow;
  left_out_in_row_ = 0;
  ++overflows_;
  if (scaler_->factor() < kLeastLossScale) {
    random_ = before;
    const std::string fault = find_fault_of_step();
    fail(
        "train",
        "the gradients stay infinite or NaN at step {}, however small the loss scale is{}; a smaller learning rate may "
        "help (it is {})",
        step_ + 1, fault.empty() ? "" : ": " + fault, base_lr(recipe_));
  }
}

void Trainer::leave_out(double loss) {
  const Generator before = random_;
  take_back();
  outcome_ = StepOutcome::left_out;
  ++left_out_;
  ++left_out_in_row_;
  if (!recipe_.skip_nonfinite || left_out_in_row_ >= recipe_.max_nonfinite) {
    random_ = before;
    const std::string fault = find_fault_of_step();
    fail("train", "{} at step {}{}{}{}; a smaller learning rate may help (it is {})",
         std::isfinite(loss) ? "a gradient became infinite or NaN" : fmt::format("the loss became {}", loss), step_ + 1,
         left_out_in_row_ > 1 ? fmt::format(", as in the {} steps before", left_out_in_row_ - 1) : "",
         fault.empty() ? "" : ": " + fault,
         recipe_.skip_nonfinite ? "" : "; --skip-nonfinite leaves out single steps like this one", base_lr(recipe_));
  }
}

std::string Trainer::find_fault_of_step() {
  optimizer_->zero_grad();
  default_generator() = random_;
  data::Loader loader = make_train_loader(recipe_, train_set_, /* workers= */ 0, plan_.batches_before(step_));
  return find_fault(*model_, [&] {
    accumulate_gradients(
        plan_.batches_of(step_), [&] { return loader.next().value(); }, nullptr);
  });
}

}  // namespace norma::train

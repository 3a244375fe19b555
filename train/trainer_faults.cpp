#include "core/error.h"
#include "core/random.h"
#include "train/trainer.h"

#include <fmt/format.h>

#include <cmath>
#include <string>

// Of Trainer: steps whose loss or gradients are not finite.

namespace norma::train {

void Trainer::leave_out(double loss) {
  const Generator after = default_generator();
  buffers_.put_back(*model_);
  ++left_out_;
  ++left_out_in_row_;
  if (!recipe_.skip_nonfinite || left_out_in_row_ >= recipe_.max_nonfinite) {
    const std::string fault = find_fault_of_step();
    fail("train", "{} at step {}{}{}{}; a smaller learning rate may help (it is {})",
         std::isfinite(loss) ? "a gradient became infinite or NaN" : fmt::format("the loss became {}", loss), step_ + 1,
         left_out_in_row_ > 1 ? fmt::format(", as in the {} steps before", left_out_in_row_ - 1) : "",
         fault.empty() ? "" : ": " + fault,
         recipe_.skip_nonfinite ? "" : "; --skip-nonfinite leaves out single steps like this one", base_lr(recipe_));
  }
  optimizer_->zero_grad();
  random_ = after;
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

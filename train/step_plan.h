#pragma once

#include <algorithm>
#include <cstdint>

namespace norma::train {

/// The batches of a loader that make each step (update) of a run. A step has `accumulate` batches; the last step of an
/// epoch and of the run has the rest, as with timm's --grad-accum-steps. Steps, batches and epochs count from 0.
struct StepPlan {
  int64_t batches_per_epoch = 1;
  int64_t total_batches = 0;
  int64_t accumulate = 1;

  [[nodiscard]] int64_t steps_per_epoch() const { return steps_for(batches_per_epoch); }
  [[nodiscard]] int64_t total_steps() const {
    return total_batches / batches_per_epoch * steps_per_epoch() + steps_for(total_batches % batches_per_epoch);
  }
  /// The number of batches before a step; for a step at or behind the end of the run all batches.
  [[nodiscard]] int64_t batches_before(int64_t step) const {
    const int64_t epoch = step / steps_per_epoch();
    return std::min(epoch * batches_per_epoch + step % steps_per_epoch() * accumulate, total_batches);
  }
  [[nodiscard]] int64_t batches_of(int64_t step) const { return batches_before(step + 1) - batches_before(step); }

 private:
  [[nodiscard]] int64_t steps_for(int64_t batches) const { return (batches + accumulate - 1) / accumulate; }
};

}  // namespace norma::train

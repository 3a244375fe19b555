#pragma once

#include "data/loader.h"
#include "train/step_observer.h"
#include "train/training_state.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace norma::train {

/// Does a step of training again while every op is searched for NaN and infinities (AnomalyGuard), and says which was
/// the first to give one: "layer1.0.conv1: conv2d: forward gave Inf in output 0 (…), element 5", with the layer that
/// the op belongs to. A parameter that is not finite before the step is named instead. "" where nothing is found, and
/// where memory does not suffice for the search.
std::string find_fault(const nn::Module& model, const std::function<void()>& forward_and_backward);

enum class StepOutcome : uint8_t {
  updated,
  left_out,  ///< the loss or a gradient was not finite (Recipe::skip_nonfinite)
  overflow   ///< gradients overflowed in float16; a smaller scale of the loss may mend them
};

struct StepResult {
  double loss = 0;
  StepOutcome outcome = StepOutcome::updated;
};

/// The steps of a run that go wrong: numbers that are not finite, and memory that does not suffice.
class StepFaults {
 public:
  explicit StepFaults(TrainingState& run) : run_(run) {}

  /// Before the forward pass of a step: keeps what it changes before its update.
  void begin_step();
  /// After the gradients of a step: says whether the update can be made, and otherwise takes back what the step has
  /// changed. Throws Error that names the op and the layer which gave the first number that is not finite, where such
  /// steps are not left out or there were too many in a row.
  StepResult judge(const Tensor& loss);
  /// Calls `steps`. Where memory does not suffice, throws OutOfMemory that says what holds the memory and the largest
  /// batch that fits, beside what `workers` of the loader hold. `resumed`: the run cannot take another batch size.
  void explain_memory(int workers, bool resumed, const std::function<void()>& steps);

 private:
  [[nodiscard]] bool steps_may_be_left_out() const { return run_.recipe.skip_nonfinite || run_.scaler; }
  /// The loss of a step, and whether its gradients are finite; waits for the device once.
  [[nodiscard]] std::pair<double, bool> look_at(const Tensor& loss) const;
  /// find_fault() of the step that comes next, with its own batches and random numbers.
  std::string find_fault_of_step();
  [[noreturn]] void fail_for_memory(int workers, bool resumed, const std::string& reason);

  TrainingState& run_;
  nn::NamedTensors buffers_;  // copies from before the step, of running statistics
};

using NextBatch = std::function<data::Batch()>;

/// One update from the gradients of so many batches; TrainingState::step stays. A step that is left out changes nothing
/// but the random numbers and the counts of such steps. Throws Error as StepFaults::judge().
StepResult train_step(TrainingState& run, StepFaults& faults, int64_t batches, const NextBatch& next,
                      StepObserver* observer = nullptr);

}  // namespace norma::train

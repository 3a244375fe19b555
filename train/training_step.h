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

/// Repeats a step of training while every op is searched for NaN and infinities (AnomalyGuard), and names the first
/// that gave one, with its layer: "layer1.0.conv1: conv2d: forward gave Inf in output 0 (…), element 5". If a parameter
/// is not finite before the step, it names that instead. "" if nothing is found, or if memory does not suffice for the
/// search.
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

/// Handles the faults of a run's steps: numbers that are not finite, and too little memory.
class StepFaults {
 public:
  explicit StepFaults(TrainingState& run) : run_(run) {}

  /// Call it before the forward pass of a step: keeps the state that the step changes before its update.
  void begin_step();
  /// Call it after the gradients of a step. Returns two float64 numbers on the loss's device: the loss, and a number
  /// that is finite iff the gradients are. Where steps cannot be left out, it looks only at the gradient of the first
  /// trained parameter: most errors of later layers reach it.
  [[nodiscard]] Tensor look_at(const Tensor& loss) const;
  /// Decides by what look_at() found if the update can be made, and otherwise undoes the step's changes. Waits for the
  /// device. Throws Error that names the op and the layer of the first number that is not finite, if such steps are not
  /// left out or too many came in a row.
  StepResult judge(const Tensor& seen);
  /// What judge() calls before it waits.
  void set_before_waiting(std::function<void()> call) { before_waiting_ = std::move(call); }
  /// Calls `steps`. If memory does not suffice, throws OutOfMemory with the parts of the memory, the loader's of
  /// `workers` threads included, and the largest batch that fits. `resumed`: the run cannot take another batch size.
  void explain_memory(int workers, bool resumed, const std::function<void()>& steps);

 private:
  [[nodiscard]] bool steps_may_be_left_out() const { return run_.recipe.skip_nonfinite || run_.scaler; }
  /// find_fault() for the next step, with its own batches and random numbers.
  std::string find_fault_of_step();
  [[noreturn]] void fail_for_memory(int workers, bool resumed, const std::string& reason);

  TrainingState& run_;
  std::function<void()> before_waiting_;
  Tensors buffers_;  // copies of the running statistics from before the step
};

/// A training batch of a run on the host, for measurements: zeros of class 0.
data::Batch batch_of_zeros(const Recipe& recipe, int64_t images);

using NextBatch = std::function<data::Batch()>;

/// Adds the gradients of `batches` batches to the present ones. Returns the mean loss, on its device. For the last
/// batch it begins a step of `observer`, if any, and puts it into `seen`.
Tensor accumulate_gradients(TrainingState& run, int64_t batches, const NextBatch& next,
                            StepObserver* observer = nullptr, std::unique_ptr<ObservedStep>* seen = nullptr);
/// The training loss of the first batch of the run with the present weights, and the tape that leads to it. Computed in
/// the dtype of the parameters, without autocast and TF32, in the network's mode. Random numbers are the same at each
/// call; running statistics and the default generator move.
Tensor loss_of_first_batch(TrainingState& run);
/// Gives the optimizer the learning rate and the momentum of the run's next step.
void set_schedules(TrainingState& run);

/// Makes one update from the gradients of `batches` batches; TrainingState::step stays. A step that is left out changes
/// only the random numbers and the counts of such steps. Throws Error as StepFaults::judge() does.
StepResult train_step(TrainingState& run, StepFaults& faults, int64_t batches, const NextBatch& next,
                      StepObserver* observer = nullptr);

}  // namespace norma::train

#pragma once

#include "base/not_copied.h"
#include "core/tensor.h"
#include "nn/module.h"
#include "nn/optim/optimizer.h"
#include "train/evaluate.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace norma::train {

/// The view of one training step while it runs. It is destroyed at the end of the step, even if that throws.
class ObservedStep : NotCopied {
 public:
  virtual ~ObservedStep() = default;

  /// The tape that leads to `loss` is whole. The gradients will be those of loss · grad_scale (nn::GradScaler).
  virtual void after_forward(const Tensor& loss, double grad_scale) = 0;
  virtual void after_backward() {}
  virtual void after_update() {}
};

/// The facts about a run that observers get.
struct ObservedRun {
  nn::Module& model;
  int64_t first_step;  ///< steps done before: 0 unless resumed
  int64_t total_steps;
  int64_t batch_size;
  /// In begin_step() it has the learning rate of that step. Null: unknown.
  const nn::Optimizer* optimizer = nullptr;
  /// loss_of_first_batch() of the run. It changes running statistics and random numbers: the caller restores them.
  /// Empty: unknown.
  std::function<Tensor()> loss_of_first_batch = {};
  /// Prints a line about the run that stays. Empty: nothing is printed.
  std::function<void(const std::string& text)> print = {};
};

/// Observes the steps of a training run (TrainerOptions::observer). All calls come from the thread that trains. It must
/// not change the network, the gradients or the random numbers.
class StepObserver : NotCopied {
 public:
  virtual ~StepObserver() = default;

  /// Called once in each run(), before its steps and evaluations; a resumed run may have no steps left.
  virtual void start(const ObservedRun& /*run*/) {}
  /// False: begin_step() never observes a step, and steps may be launches of a graph.
  [[nodiscard]] virtual bool looks_into_steps() const { return true; }
  /// Called before the forward pass of a step; the first of a run has number 1. Null: this step is not observed.
  virtual std::unique_ptr<ObservedStep> begin_step(int64_t step) = 0;
  /// Called after each step that updated the weights; `seconds` includes waiting for the batch.
  virtual void end_step(int64_t /*step*/, double /*loss*/, double /*seconds*/) {}
  /// Called after each step that was left out (Recipe::skip_nonfinite, overflow in float16), in place of end_step().
  virtual void left_out_step(int64_t /*step*/, double /*loss*/, double /*seconds*/) {}
  /// Called after each complete evaluation.
  virtual void evaluated(int64_t /*step*/, const Evaluation& /*test*/) {}
};

}  // namespace norma::train

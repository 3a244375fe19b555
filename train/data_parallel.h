#pragma once

#include "data/loader.h"
#include "parallel/gradient_reducer.h"
#include "parallel/process_group.h"
#include "train/checkpoint.h"

#include <memory>
#include <string>

namespace norma::train {

struct TrainingState;

/// The processes of a run. Each has the whole network and a part of each batch. Their gradients add up to those of the
/// batch, and so all make the same update. A process alone does nothing of what follows.
class DataParallel {
 public:
  explicit DataParallel(std::shared_ptr<parallel::ProcessGroup> group = parallel::make_single_group());

  [[nodiscard]] bool alone() const { return group_->size() == 1; }
  [[nodiscard]] parallel::ProcessGroup& group() const { return *group_; }
  /// For loaders.
  [[nodiscard]] data::LoaderPart part() const { return {.number = group_->rank(), .parts = group_->size()}; }

  /// Begins a run whose parameters are the same in all processes (check_processes_agree()). Throws Error, in all of
  /// them, where a batch has fewer images than there are processes. Then all have the buffers of the first. Norms
  /// `sync_batch`, and with Recipe::sync_bn all batch norms, share their statistics.
  void start(TrainingState& run);

  /// loss.backward(). `last`: this is the last backward pass of a step, so the processes sum up gradients while it
  /// runs.
  void backward(const Tensor& loss, bool last);
  /// Call it after the last backward() of a step: gradients become their sums over the processes. Returns the sum of
  /// `loss`, and all processes know of it if one was asked to stop (train/stop.h).
  Tensor finish_step(const Tensor& loss);

  /// Gives all processes the mean of the running statistics, which each has from its own images, unless they share
  /// them, and the mean of the moving averages of these (ema.h). Returns a line that says how far apart the statistics
  /// were, or "" where there was nothing to do.
  std::string average_statistics(TrainingState& run);

  /// The checkpoint of the run, with averaged statistics: the run itself keeps those of its process, so that it has the
  /// same bits whenever this is called.
  [[nodiscard]] Checkpoint checkpoint(TrainingState& run);

  /// Lets this process make steps without the others, to look for a fault in its own part of a batch. There is no way
  /// back.
  void work_alone(TrainingState& run);

 private:
  std::shared_ptr<parallel::ProcessGroup> group_;
  std::unique_ptr<parallel::GradientReducer> reducer_;
};

}  // namespace norma::train

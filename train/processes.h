#pragma once

#include "base/error.h"
#include "data/loader.h"
#include "parallel/gradient_reducer.h"
#include "parallel/process_group.h"
#include "train/checkpoint.h"

#include <functional>
#include <memory>
#include <string>

namespace norma::train {

/// True iff work shall end before its end: somebody has asked for it, as signals do (session/interrupt.h). Loops look
/// once a step. Between StopFlag::share(true) and share(false) it becomes true in all processes together, at settle().
bool interrupted();
/// The signal that asked; 0 if none did.
int interrupting_signal();

/// The flag behind interrupted(), for those who set it.
class StopFlag {
 public:
  /// Asks for the end. Returns false if that was done before: the first signal stays. Signal handlers may call it.
  static bool ask(int signal);
  static void withdraw();
  /// True iff this process was asked.
  static bool is_pending();
  /// Whether processes that work together ask together: then a signal counts when settle() says so, which all of them
  /// call at the same places.
  static void share(bool together);
  /// `any`: some process was asked.
  static void settle(bool any);
};

// How the processes of a group decide as one. All of them call each of these functions at the same place. In a group of
// one process they do what the process would do without them.

/// An error that all processes throw at the same place, with the same text: they may go on with other work together.
class AgreedError : public Error {
 public:
  using Error::Error;
};

/// The text of the first process.
std::string text_of_first(parallel::ProcessGroup& group, const std::string& text);
/// The text of the first process that has one; "" if none has.
std::string first_text(parallel::ProcessGroup& group, const std::string& text);

/// `value` of the first process.
bool of_first(parallel::ProcessGroup& group, bool value);
/// Call it in a handler of what may have been thrown by one process alone: rethrows it in a group of several, unless it
/// is an AgreedError.
void rethrow_unless_agreed(const parallel::ProcessGroup& group);

/// Runs `work`, in which no process waits for another. Where it throws in some, all throw AgreedError with the text of
/// the first of these. In a group of one, exceptions pass as they are.
void do_together(parallel::ProcessGroup& group, const std::function<void()>& work);

/// Runs `work` in the first process while the others wait, for as long as it takes: ProcessGroupOptions::timeout counts
/// only where the first process is stopped. Where one of them is asked to stop, all are (StopFlag). What
/// `work` throws, all throw, as Error with the same text.
void do_in_first(parallel::ProcessGroup& group, const std::function<void()>& work);

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
  /// `loss`, and all processes know of it if one was asked to stop (interrupted()).
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

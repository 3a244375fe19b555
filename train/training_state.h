#pragma once

#include "core/random.h"
#include "nn/optim/grad_scaler.h"
#include "nn/optim/optimizer.h"
#include "train/checkpoint.h"
#include "train/ema.h"
#include "train/freeze.h"
#include "train/precision.h"
#include "train/processes.h"
#include "train/recipe.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

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
  /// The number of batches before a step; for a step at or after the end of the run all batches.
  [[nodiscard]] int64_t batches_before(int64_t step) const {
    const int64_t epoch = step / steps_per_epoch();
    return std::min(epoch * batches_per_epoch + step % steps_per_epoch() * accumulate, total_batches);
  }
  [[nodiscard]] int64_t batches_of(int64_t step) const { return batches_before(step + 1) - batches_before(step); }

 private:
  [[nodiscard]] int64_t steps_for(int64_t batches) const { return (batches + accumulate - 1) / accumulate; }
};

/// The plan of a recipe's run.
StepPlan plan_of(const Recipe& recipe, const std::shared_ptr<const data::Dataset>& train_set);

/// The mean loss of some steps; NaN without any.
struct MeanLoss {
  double sum = 0;
  int64_t steps = 0;

  void add(double loss) {
    sum += loss;
    ++steps;
  }
  [[nodiscard]] double value() const { return sum / static_cast<double>(steps); }
};

/// A training run between two steps: its parts and its progress. A checkpoint keeps all that steps change. The same
/// recipe and number of threads give the same bits, whether or not a run was interrupted and resumed.
struct TrainingState {
  /// A run before its first step, of the processes of a group. `resumed`: its weights come from resume(), and not from
  /// Recipe::initial_checkpoint. Throws Error for an invalid recipe, and for data and weights that cannot be read.
  explicit TrainingState(Recipe of_run, std::shared_ptr<parallel::ProcessGroup> group = parallel::make_single_group(),
                         bool resumed = false);
  /// Goes on from a checkpoint. Returns "images 14 → 13" if the number of training images has changed, else "". Throws
  /// Error for other classes, and when the checkpoint's tensors do not fit the network, are not finite, or contradict
  /// its metadata. What else makes it a checkpoint of another run, resume_run() knows (session/resume.h). The number of
  /// training images may change only between two epochs, and not that of batches; else Error.
  std::string resume(const Checkpoint& checkpoint);
  [[nodiscard]] Checkpoint checkpoint() const;

  [[nodiscard]] int64_t total_steps() const { return plan.total_steps(); }
  [[nodiscard]] int64_t steps_per_epoch() const { return plan.steps_per_epoch(); }
  /// True iff an epoch, or the run, ends with the last step.
  [[nodiscard]] bool epoch_ends() const { return step == total_steps() || step % steps_per_epoch() == 0; }
  /// The images of all steps so far.
  [[nodiscard]] int64_t images_seen() const { return plan.batches_before(step) * recipe.batch_size; }
  /// The learning rate of a step, from 0.
  [[nodiscard]] double lr(int64_t of_step) const { return base_lr(recipe) * schedules.lr(of_step); }
  /// The model's state dict, with float32 values instead of 16-bit parameters: master weights, and of frozen parameters
  /// those of the start.
  [[nodiscard]] nn::NamedTensors wide_state() const;

  Recipe recipe;
  DataParallel processes;
  Precision precision;
  CastCache casts;  ///< parameters in the dtype of Precision::autocast
  std::shared_ptr<const data::Dataset> train_set;
  std::shared_ptr<const data::Dataset> test_set;
  std::shared_ptr<nn::Module> model;
  std::unique_ptr<nn::Optimizer> optimizer;
  std::optional<nn::GradScaler> scaler;  ///< for float16
  std::optional<Ema> ema;                ///< for Recipe::model_ema
  Schedules schedules;
  StepPlan plan;

  std::map<std::string, std::string> notes;  ///< entries of Checkpoint::options that whoever made the run adds

  FrozenTensors frozen;         ///< as they were at the start
  std::string initial;          ///< what load_initial_weights() has to say; "": nothing was loaded
  int64_t step = 0;             ///< steps done
  Generator random;             ///< dropout and drop path draw from it
  int64_t left_out = 0;         ///< steps that Recipe::skip_nonfinite left out
  int64_t left_out_in_row = 0;  ///< of these, the ones in a row up to the last step
  int64_t overflows = 0;        ///< steps whose gradients overflowed in float16
  // The figures for the rows of this step, written or not, so that resuming can write them.
  MeanLoss row_loss;
  MeanLoss epoch_loss;
  bool row_written = false;
  std::optional<BestEvaluation> evaluated = {};  ///< the last one, for KeepOptions::best
  std::optional<BestEvaluation> best = {};

 private:
  std::map<std::string, Tensor> frozen_wide_;  // of frozen 16-bit parameters

  /// See resume().
  [[nodiscard]] std::string images_change(const Checkpoint& checkpoint) const;
};

/// The key in Checkpoint::options for the recipe.
inline constexpr const char* kRecipeKey = "recipe";
/// The recipe that a checkpoint was made with. Throws Error when it has none, and for tensors of another network.
Recipe recipe_of(const Checkpoint& checkpoint);

}  // namespace norma::train

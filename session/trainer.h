#pragma once

#include "session/output.h"
#include "session/run_folder.h"
#include "train/evaluate.h"
#include "train/loop.h"
#include "train/memory_use.h"
#include "train/step_observer.h"
#include "train/training_state.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::train {

/// The cost of a run, from a few of its own steps.
struct DryRun {
  MemoryUse memory;         ///< counted in a real step
  int64_t peak_bytes = 0;   ///< the most that tensors held, measured
  int64_t first_steps = 0;  ///< not timed: they make kernels and fetch memory
  int64_t timed_steps = 0;
  /// The median of the timed steps without waiting for images, or loading_seconds if that is longer. With workers = 0
  /// it is the sum of the two. If loading_seconds is unknown, it is the median with waiting.
  double step_seconds = 0;
  double loading_seconds = 0;  ///< for the images of a step at the loader's full speed; 0: the run is too short to tell
  int workers = 0;             ///< loader threads; 0: a step loads, then computes
  int64_t images_per_step = 0;
  int64_t steps_left = 0;         ///< steps from the start of this call to the end of the run
  int64_t evaluations = 0;        ///< in the run
  double evaluation_seconds = 0;  ///< per evaluation, from a part of the test images; with averaged weights twice
  double seconds = 0;             ///< of all steps and evaluations
};

/// The options that do not change the result of a run.
struct TrainerOptions {
  std::filesystem::path output;   ///< folder for last.safetensors and the logs (RunLog); empty: write no files
  std::filesystem::path resumed;  ///< the checkpoint to resume, which may be overwritten
  /// Text of args.toml in the output folder, to start the run again; "": no such file. A file with another first line
  /// is not overwritten.
  std::string arguments = {};
  /// Lock of the output folder, taken before the checkpoint was read; none: run() takes it.
  std::shared_ptr<const FolderLock> lock = {};
  KeepOptions keep = {};            ///< checkpoints beside last.safetensors
  int workers = 1;                  ///< background threads of the loader
  int64_t log_interval = 50;        ///< steps between two lines of the progress display and of metrics.csv
  bool evaluate_each_epoch = true;  ///< else only at the end
  bool evaluate = true;             ///< false: the test images are never used
  GraphMode cuda_graph = GraphMode::automatic;
  bool log_json = false;     ///< write log.jsonl
  bool tensorboard = false;  ///< write an event file for TensorBoard
  bool quiet = false;        ///< print nothing but warnings
  std::string label;         ///< at the front of the progress display
  /// For the progress display: the seconds of work that follows this run, given the total seconds of this run. Empty:
  /// none follows.
  std::function<double(double seconds)> time_after = {};
  /// Called before each "step", "save", "evaluate" and "log". An exception from it ends the run there.
  std::function<void(std::string_view stage)> before_stage = {};
  /// The time in seconds, for measuring steps and the warning about slow loading; empty: the system's clock.
  std::function<double()> clock = {};
  /// Observes the steps and evaluations of run(); may be null.
  std::shared_ptr<StepObserver> observer = {};
  /// The processes of the run. All but the first have no `output`.
  std::shared_ptr<parallel::ProcessGroup> group = parallel::make_single_group();

  /// The time by `clock`.
  [[nodiscard]] double now() const;
};

struct TrainResult {
  bool finished = false;  ///< false: a signal came first
  int64_t step = 0;       ///< steps done, with those before a resume
  int64_t total_steps = 0;
  int64_t parameters = 0;
  std::vector<double> losses;               ///< of each step in this call
  int64_t graph_steps = 0;                  ///< of these, the launches of a graph (TrainerOptions::cuda_graph)
  Evaluation test;                          ///< of the last evaluation; without images if there was none
  Evaluation ema_test = {};                 ///< likewise with the averaged weights, for Recipe::model_ema
  std::optional<BestEvaluation> best = {};  ///< of the whole run, for KeepOptions::best
  double images_per_second = 0;  ///< batch size over the median time of a step, without evaluation and checkpoints
  double seconds = 0;            ///< in all, with evaluation and checkpoints
  int64_t left_out = 0;          ///< steps of the run that Recipe::skip_nonfinite left out
  int64_t peak_bytes = 0;        ///< the most that tensors held during training
  int64_t peak_resident = 0;     ///< the most that the process held during training, by the system's count
};

/// Trains one network by a recipe, on the default device. The same recipe and number of threads give the same bits,
/// whether or not the run was interrupted and resumed.
///
/// run() observes train_loop(). Its parts are TrainingState (the network and its progress), train_step() and StepFaults
/// (a step and its faults), RunOutput (the folder and its checkpoints), RunLog and Progress.
class Trainer {
 public:
  /// Throws Error for an invalid recipe, data that cannot be read, and an output folder that cannot be written.
  explicit Trainer(Recipe recipe, TrainerOptions options = {});
  /// Goes on from a checkpoint. Throws Error as resume_run() (session/resume.h).
  Trainer(Recipe recipe, TrainerOptions options, const Checkpoint& checkpoint);

  /// Trains to the end, or until interrupted() (train/processes.h). Writes a checkpoint at the end of every epoch, at
  /// the end, and when interrupted, and those of TrainerOptions::keep. However a run ended, after resuming the log has
  /// the rows of an uninterrupted run, except for times. Throws Error when the output folder holds the checkpoint of
  /// another run or the logs of a finished epoch, another process is writing there or it is moved, when a file cannot
  /// be written, and when the loss or a gradient (StepFaults::look_at()) becomes NaN or infinite, naming the op and the
  /// layer (Recipe::skip_nonfinite leaves such steps out). The last checkpoint stays. Throws OutOfMemory with the parts
  /// of the memory and the largest batch that fits.
  TrainResult run();
  /// Evaluates the network on a fixed part of the training images (evaluate_on_training_images()), outside the time of
  /// run().
  Evaluation evaluate_fit(int64_t images);
  /// Evaluates the network on the test images, likewise.
  Evaluation evaluate_test();
  /// Puts the moving averages (Recipe::model_ema) into the network of a finished run. `batches` above 0: the running
  /// statistics are made anew for them by so many training batches at most (recalibrate()), else they are averages,
  /// too. Call only evaluations afterwards.
  void take_averages(int64_t batches = 0);
  /// Makes a few steps on the run's own images, and writes nothing. Call nothing else afterwards, since the network has
  /// changed. Throws OutOfMemory as run() does.
  DryRun dry_run();

  [[nodiscard]] const std::shared_ptr<nn::Module>& model() const { return state_.model; }
  [[nodiscard]] const Recipe& recipe() const { return state_.recipe; }
  [[nodiscard]] const Precision& precision() const { return state_.precision; }
  [[nodiscard]] int64_t classes() const { return state_.train_set->info().num_classes(); }
  [[nodiscard]] int64_t step() const { return state_.step; }
  [[nodiscard]] int64_t total_steps() const { return state_.total_steps(); }
  [[nodiscard]] int64_t steps_per_epoch() const { return state_.steps_per_epoch(); }
  /// The training images of all steps before this one.
  [[nodiscard]] int64_t images_before(int64_t step) const {
    return state_.plan.batches_before(step) * state_.recipe.batch_size;
  }
  /// "images 14 → 13" if the run goes on with another number of training images; else "".
  [[nodiscard]] const std::string& images_change() const { return images_change_; }
  /// Of a resumed run, as train::rate_jump() (session/resume.h).
  [[nodiscard]] const std::string& rate_jump() const { return rate_jump_; }
  /// What was and was not taken of Recipe::initial_checkpoint; "" where nothing was loaded.
  [[nodiscard]] const std::string& initial_weights() const { return state_.initial; }
  /// The learning rate of a step, from 0.
  [[nodiscard]] double lr(int64_t step) const { return state_.lr(step); }
  [[nodiscard]] Checkpoint checkpoint() const { return state_.checkpoint(); }
  /// The same with the running statistics of all processes, which all call it.
  [[nodiscard]] Checkpoint shared_checkpoint() { return state_.processes.checkpoint(state_); }
  /// The file of the last checkpoint; empty without an output folder.
  [[nodiscard]] std::filesystem::path checkpoint_file() const;

 private:
  Trainer(Recipe recipe, TrainerOptions options, bool resumed);

  TrainerOptions options_;
  TrainingState state_;
  std::string images_change_;
  std::string rate_jump_;
};

}  // namespace norma::train

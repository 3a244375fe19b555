#pragma once

#include "train/dry_run.h"
#include "train/evaluate.h"
#include "train/folder_lock.h"
#include "train/run_output.h"
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

/// What does not change the result of a run.
struct TrainerOptions {
  std::filesystem::path output;   ///< folder for last.safetensors and the logs (RunLog); empty: write no files
  std::filesystem::path resumed;  ///< the checkpoint that is resumed, which may be written over
  /// Text of args.toml in the output folder, how to start the run again; "": no such file. One that begins with another
  /// line than this is not written over.
  std::string arguments = {};
  /// Of the output folder, from before the checkpoint was read; none: run() takes it.
  std::shared_ptr<const FolderLock> lock = {};
  KeepOptions keep = {};            ///< checkpoints beside last.safetensors
  int workers = 1;                  ///< background threads of the loader
  int64_t log_interval = 50;        ///< steps between two lines of the progress display and of metrics.csv
  bool evaluate_each_epoch = true;  ///< else only at the end
  bool evaluate = true;             ///< false: the test images are never looked at
  bool log_json = false;            ///< write log.jsonl
  bool tensorboard = false;         ///< write an event file for TensorBoard
  bool quiet = false;               ///< print nothing but warnings
  std::string label;                ///< in front of the progress display
  /// For the display: seconds that come after this run, given those that it takes in all. Empty: none.
  std::function<double(double seconds)> time_after = {};
  /// Called before each "step", "save", "evaluate" and "log". What it throws ends the run there.
  std::function<void(std::string_view stage)> before_stage = {};
  /// What time it is in seconds, for steps and the warning that they wait for images; empty: the system's clock.
  std::function<double()> clock = {};
  /// Sees the steps and evaluations of run(); none: nobody does.
  std::shared_ptr<StepObserver> observer = {};

  /// A line about the run: its label stands before the text.
  [[nodiscard]] std::string labelled(const std::string& text) const;
  /// The time by `clock`.
  [[nodiscard]] double now() const;
};

struct TrainResult {
  bool finished = false;  ///< false: a signal came first
  int64_t step = 0;       ///< steps done, those before a resume included
  int64_t total_steps = 0;
  int64_t parameters = 0;
  std::vector<double> losses;               ///< of each step of this call
  Evaluation test;                          ///< of the last evaluation; no images: there was none
  Evaluation ema_test = {};                 ///< the same with the averaged weights, for Recipe::model_ema
  std::optional<BestEvaluation> best = {};  ///< of the whole run, for KeepOptions::best
  double images_per_second = 0;  ///< batch size over the median time of a step; evaluation and checkpoints not counted
  double seconds = 0;            ///< in all, evaluation and checkpoints included
  int64_t left_out = 0;          ///< steps of the run that Recipe::skip_nonfinite left out
  int64_t peak_bytes = 0;        ///< the most that tensors held during training
  int64_t peak_resident = 0;     ///< the most that the process held during training, as the system counts it
};

/// Trains one network by a recipe, on the default device. The same recipe and number of threads give the same bits,
/// whether or not the run was interrupted and resumed.
///
/// run() is the loop. What it is made of stands beside it: TrainingState (the network, and how far it is), train_step()
/// and StepFaults (a step, and what may go wrong in it), RunOutput (the folder and its checkpoints), RunReports
/// (evaluations and the log).
class Trainer {
 public:
  /// Throws Error for a recipe that makes no sense, data that cannot be read, and an output folder that cannot be
  /// written.
  explicit Trainer(Recipe recipe, TrainerOptions options = {});
  /// Goes on from a checkpoint. Throws Error as TrainingState::resume().
  Trainer(Recipe recipe, TrainerOptions options, const Checkpoint& checkpoint);

  /// Trains to the end, or until interrupted() (interrupt.h). Writes a checkpoint at the end of every epoch, at the
  /// end, and when interrupted, and those of TrainerOptions::keep. However a run ended, the log of the resumed one has
  /// the rows of an uninterrupted one, times aside. Throws Error when the output folder holds the checkpoint of another
  /// run or the logs of a finished epoch, another process is writing there or it is moved, when a file cannot be
  /// written, and when the loss or a gradient becomes NaN or infinite, naming the op and the layer that gave it
  /// (Recipe::skip_nonfinite leaves such steps out); the last checkpoint stays. Throws OutOfMemory, which says what
  /// holds the memory and the largest batch that fits.
  TrainResult run();
  /// Makes a few steps on the run's own images, and writes nothing. Call nothing else afterwards: the network has
  /// changed. Throws OutOfMemory as run() does.
  DryRun dry_run();

  [[nodiscard]] const std::shared_ptr<nn::Module>& model() const { return state_.model; }
  [[nodiscard]] const Recipe& recipe() const { return state_.recipe; }
  [[nodiscard]] const Precision& precision() const { return state_.precision; }
  [[nodiscard]] int64_t step() const { return state_.step; }
  [[nodiscard]] int64_t total_steps() const { return state_.total_steps(); }
  [[nodiscard]] int64_t steps_per_epoch() const { return state_.steps_per_epoch(); }
  /// "images 14 → 13" where the run goes on with another number of training images; else "".
  [[nodiscard]] const std::string& images_change() const { return images_change_; }
  /// The learning rate of a step, from 0.
  [[nodiscard]] double lr(int64_t step) const { return state_.lr(step); }
  [[nodiscard]] Checkpoint checkpoint() const { return state_.checkpoint(); }
  /// Where checkpoints go; empty without an output folder.
  [[nodiscard]] std::filesystem::path checkpoint_file() const;

 private:
  TrainerOptions options_;
  TrainingState state_;
  std::string images_change_;
};

}  // namespace norma::train

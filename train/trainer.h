#pragma once

#include "core/random.h"
#include "nn/optim/grad_scaler.h"
#include "train/checkpoint.h"
#include "train/dry_run.h"
#include "train/ema.h"
#include "train/environment.h"
#include "train/evaluate.h"
#include "train/folder_lock.h"
#include "train/kept_checkpoints.h"
#include "train/loading_watch.h"
#include "train/progress.h"
#include "train/recipe.h"
#include "train/run_log.h"
#include "train/step_fault.h"
#include "train/step_observer.h"
#include "train/step_plan.h"

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
class Trainer {
 public:
  /// Throws Error for a recipe that makes no sense, data that cannot be read, and an output folder that cannot be
  /// written.
  explicit Trainer(Recipe recipe, TrainerOptions options = {});
  /// Goes on from a checkpoint. Throws Error when its run was another one (check_same_run()), when its tensors do
  /// not fit the network, are not finite, or contradict its metadata, and when the training images are more or fewer:
  /// that may be between two epochs only, of as many batches as before.
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

  [[nodiscard]] const std::shared_ptr<nn::Module>& model() const { return model_; }
  [[nodiscard]] const Recipe& recipe() const { return recipe_; }
  [[nodiscard]] const Precision& precision() const { return precision_; }
  [[nodiscard]] int64_t step() const { return step_; }
  [[nodiscard]] int64_t total_steps() const { return total_steps_; }
  [[nodiscard]] int64_t steps_per_epoch() const { return steps_per_epoch_; }
  /// "images 14 → 13" where the run goes on with another number of training images; else "".
  [[nodiscard]] const std::string& images_change() const { return images_change_; }
  /// The learning rate of a step, from 0.
  [[nodiscard]] double lr(int64_t step) const { return base_lr(recipe_) * schedules_.lr(step); }
  [[nodiscard]] Checkpoint checkpoint() const;
  /// Where checkpoints go; empty without an output folder.
  [[nodiscard]] std::filesystem::path checkpoint_file() const;

 private:
  /// Of the number of training images: throws as the constructor, or sets images_change_. Earlier checkpoints have
  /// none.
  void check_images(const Checkpoint& checkpoint);
  /// The model's state dict, with float32 master weights in the place of 16-bit parameters.
  [[nodiscard]] nn::NamedTensors wide_state() const;
  using NextBatch = std::function<data::Batch()>;
  /// One update from the gradients of `batches` batches. Returns their mean loss. A step that is left out changes
  /// nothing but random_ and the counts of such steps.
  double train_step(int64_t batches, const NextBatch& next);
  /// The gradients of these batches; returns their mean loss on its device. Of the last batch an observed step is
  /// begun.
  Tensor accumulate_gradients(int64_t batches, const NextBatch& next, std::unique_ptr<ObservedStep>* seen);
  /// After the gradients of a step that are not finite, or whose loss is not: takes back what the step has changed.
  /// Throws Error, with the op that made them, where such steps are not left out or there were too many in a row.
  void leave_out(double loss);
  /// The same for gradients that overflow in float16, whose loss is finite: a smaller scale may mend them.
  void leave_out_overflow();
  /// Takes back what a step has changed before its update.
  void take_back();
  [[nodiscard]] bool steps_may_be_left_out() const { return recipe_.skip_nonfinite || scaler_; }
  /// The loss of a step, and whether its gradients are finite; waits for the device once.
  [[nodiscard]] std::pair<double, bool> look_at(const Tensor& loss) const;
  /// Where the step that comes next goes wrong: find_fault() with its own batches and random numbers.
  std::string find_fault_of_step();
  /// For dry_run(): what loading the images of a step takes a loader whose batches nobody computes with; 0 where the
  /// run has too few of them to tell.
  double loading_seconds(data::Loader& loader) const;
  [[noreturn]] void fail_for_memory(const std::string& reason);
  /// Images of all steps so far.
  [[nodiscard]] int64_t images_seen() const { return plan_.batches_before(step_) * recipe_.batch_size; }
  /// Whether last.safetensors is whole and of this step; true where no files are written.
  [[nodiscard]] bool has_last() const;
  void save();
  void save_for_recovery();
  /// After an evaluation: what TrainerOptions::keep says.
  void save_with_metric(const TrainResult& result);
  void train(TrainResult& result, Progress& progress, ResidentPeak& resident);
  /// Goes on with the log of the checkpoint.
  void open_log();
  [[nodiscard]] bool evaluation_is_due() const;
  [[nodiscard]] bool row_is_due() const;
  /// The evaluation and the row of the log that belong to this step, unless a signal came: resuming does it then.
  void report_step(TrainResult& result, Progress& progress, double images_per_second);
  void log(double images_per_second, const Evaluation& test, const Evaluation& ema_test);
  /// Counts the loss of the step that was just made for the rows to come.
  void add_to_rows(double loss);
  [[nodiscard]] double now() const;
  /// A line about this run: its label stands before the text.
  [[nodiscard]] std::string labelled(const std::string& text) const;
  /// Begins a stage of TrainerOptions::before_stage; before one that writes, the output folder must be where it was.
  void enter(std::string_view stage) const;
  Evaluation evaluate_now();
  /// With the averaged weights; none where the recipe has no averages.
  Evaluation evaluate_ema();
  /// Both, into `result`. False: a signal came first.
  bool evaluate_into(TrainResult& result);

  Recipe recipe_;
  Precision precision_;
  TrainerOptions options_;
  std::shared_ptr<const data::Dataset> train_set_;
  std::shared_ptr<const data::Dataset> test_set_;
  std::string class_names_;  // for the checkpoint
  std::string images_change_;
  std::shared_ptr<nn::Module> model_;
  Device device_;  // of the model
  std::unique_ptr<nn::Optimizer> optimizer_;
  std::optional<nn::GradScaler> scaler_;  // of float16
  int64_t overflows_ = 0;                 // steps of this run that it left out
  Schedules schedules_;
  std::optional<Ema> ema_;
  std::shared_ptr<nn::Module> ema_model_;   // what the averages are evaluated in; made when they are
  Generator random_;                        // what dropping draws from
  std::shared_ptr<const FolderLock> lock_;  // of the output folder, during run()
  std::optional<RunLog> log_;
  StepPlan plan_;
  int64_t step_ = 0;
  int64_t total_steps_ = 0;
  int64_t steps_per_epoch_ = 0;
  // What the row of this step is made of, written or not: a checkpoint has it, so that resuming can write the row.
  double loss_sum_ = 0;
  int64_t loss_steps_ = 0;
  bool row_written_ = false;
  KeptBuffers buffers_;          // from before the step
  int64_t left_out_ = 0;         // steps of the run that were left out
  int64_t left_out_in_row_ = 0;  // up to the last one
  enum class StepOutcome : uint8_t { updated, left_out, overflow };
  StepOutcome outcome_ = StepOutcome::updated;  // of the last step
  // The same for the row of the epoch.
  double epoch_loss_sum_ = 0;
  int64_t epoch_loss_steps_ = 0;
  int64_t saved_step_ = -1;
  std::optional<BestEvaluation> evaluated_;  // the last one
  std::optional<BestEvaluation> best_;
};

/// What a checkpoint keeps its recipe under, in Checkpoint::options.
inline constexpr const char* kRecipeKey = "recipe";
/// The recipe a checkpoint was made with. Throws Error when it holds none.
Recipe recipe_of(const Checkpoint& checkpoint);

/// The middle of all values; of an even number, the mean of the two in the middle. 0 for none.
double median(std::vector<double> values);

}  // namespace norma::train

#pragma once

#include "base/not_copied.h"
#include "core/device_graph.h"
#include "train/step_observer.h"
#include "train/training_state.h"
#include "train/training_step.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace norma::train {

/// Whether the steps of a run become a graph (StepGraph).
enum class GraphMode : uint8_t {
  off,
  on,        ///< an Error where they cannot
  automatic  ///< where they can
};
/// "off", "on", "auto"
std::vector<std::string> graph_mode_names();
/// The mode of a name; Error for another text.
GraphMode graph_mode_from_string(const std::string& name);

/// Makes the steps of a run as one graph of the device (core/device_graph.h): forward pass, backward pass, update and
/// averages are recorded once, after two ordinary steps, and launched for each step from then on. The results have the
/// same bits as those of train_step().
///
/// What differs from step to step lies in the device's memory: the batches, the numbers of the optimizer, the share of
/// new weights in averages, the offset of random numbers. The update looks on the device whether loss and gradients are
/// finite. Where the scale of the loss has changed, the step is recorded anew. Steps of another form, such as the last
/// one of an epoch with fewer batches, are ordinary ones.
///
/// The graph's memory is its own: evaluations and ordinary steps cannot use it. So the graph ends before an ordinary
/// step and with release(), and is recorded anew after them.
class StepGraph {
 public:
  /// The number of ordinary steps before a recording. The first makes the optimizer's averages, and both let libraries
  /// choose their kernels.
  static constexpr int64_t kWarmUp = 2;

  /// The reason why no step on `device` can be recorded; "" if some can. `optimizer`: null for inference. `alone`: no
  /// other process has a part of the batch.
  static std::string obstacle(Device device, const nn::Optimizer* optimizer, const Recipe& recipe, bool alone);
  /// The reason why steps of a run cannot be recorded; "" if they can.
  static std::string obstacle(const TrainingState& run, const StepObserver* observer);

  StepGraph(TrainingState& run, StepFaults& faults, GraphMode mode);

  /// As train_step().
  StepResult step(int64_t batches, const NextBatch& next);
  /// Gives the graph's memory back, for other work such as an evaluation.
  void release();
  /// The steps that were launches of the graph.
  [[nodiscard]] int64_t launches() const { return launches_; }
  /// A line for the log since the last call: that the step was recorded, or why it cannot be; "" if there is none.
  std::string take_news() { return std::exchange(news_, {}); }

 private:
  StepResult ordinary_step(int64_t batches, const NextBatch& next);
  /// True iff these batches have as many images as most of the run's.
  [[nodiscard]] bool is_whole(const std::vector<data::Batch>& batches) const;
  /// True iff the batches lie as those of the recording.
  [[nodiscard]] bool fit(const std::vector<data::Batch>& batches) const;
  /// Makes the recording ready for a launch with these batches; false if the step must be an ordinary one.
  bool prepare(const std::vector<data::Batch>& batches);
  /// Copies the batches to the device, to where the recording reads them.
  void set_inputs(const std::vector<data::Batch>& batches);
  /// Copies the other numbers of the next step there.
  void set_numbers();
  void record();
  StepResult launch();

  TrainingState& run_;
  StepFaults& faults_;
  GraphMode mode_;
  std::unique_ptr<DeviceGraph> graph_;  // null: before a recording, and after release()
  bool gave_up_ = false;
  bool told_ = false;    // that the step was recorded
  int64_t updates_ = 0;  // of ordinary steps
  int64_t launches_ = 0;
  bool recorded_ = false;
  double loss_scale_ = 1;            // of the recording
  std::vector<data::Batch> inputs_;  // on the device
  Tensor random_origin_;             // int64
  uint64_t draws_ = 0;               // counters that a step takes from the generator
  Tensor seen_;                      // of StepFaults::look_at()
  std::string news_;
};

/// A step that the loop has made.
struct StepEvent {
  StepResult result;
  int64_t images = 0;
  double seconds = 0;  ///< since the step before was observed, with waiting for images
  double waited = 0;   ///< of these, for images
};

/// Watches a loop of training steps. Whatever a run does beside training, it does in these calls: it prints, logs,
/// saves and evaluates (session/trainer.cpp). All calls come from the thread that trains.
class LoopObserver : NotCopied {
 public:
  virtual ~LoopObserver() = default;

  /// The images of the next step are there.
  virtual void before_step() {}
  /// TrainingState::step counts the step already. Where an epoch ends, no graph holds memory.
  virtual void after_step(const StepEvent& step) = 0;
  /// A line for people about the loop itself: what becomes of its graph.
  virtual void note(const std::string& /*text*/) {}
};

/// The system's clock in seconds.
double system_seconds();

struct LoopOptions {
  int workers = 1;  ///< background threads of the loader
  GraphMode cuda_graph = GraphMode::automatic;
  StepObserver* steps = nullptr;                   ///< looks into single steps (StepObserver::begin_step())
  std::function<double()> clock = system_seconds;  ///< measures steps
};

/// Makes the steps of a run from the present one to the end, or until interrupted(). Returns how many of them were
/// launches of a graph. Throws Error as StepFaults::judge() does, and where GraphMode::on asks for what cannot be.
int64_t train_loop(TrainingState& run, StepFaults& faults, const LoopOptions& options, LoopObserver& observer);

}  // namespace norma::train

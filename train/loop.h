#pragma once

#include "train/step_graph.h"
#include "train/step_observer.h"
#include "train/training_state.h"
#include "train/training_step.h"

#include <cstdint>
#include <functional>
#include <string>

namespace norma::train {

/// A step that the loop has made.
struct StepEvent {
  StepResult result;
  int64_t images = 0;
  double seconds = 0;  ///< since the step before was observed, with waiting for images
  double waited = 0;   ///< of these, for images
};

/// Watches a loop of training steps. Whatever a run does beside training, it does in these calls: it prints, logs,
/// saves and evaluates (session/trainer.cpp). All calls come from the thread that trains.
class LoopObserver {
 public:
  LoopObserver() = default;
  virtual ~LoopObserver() = default;
  LoopObserver(const LoopObserver&) = delete;
  LoopObserver& operator=(const LoopObserver&) = delete;

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

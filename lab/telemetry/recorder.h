#pragma once

#include "lab/telemetry/dynamics.h"
#include "lab/telemetry/layer_log.h"
#include "lab/telemetry/sharpness.h"
#include "lab/telemetry/telemetry.h"
#include "train/step_observer.h"

#include <nlohmann/json_fwd.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace norma::lab {

/// Chooses the steps of a run to examine. They are spread evenly over it; a longer run has more of them, up to a limit.
/// The choice depends only on step numbers, so that two runs of one recipe have the same. A step is timed or its
/// numbers are read, never both, since reading takes time.
class TelemetrySchedule {
 public:
  /// A run has one examined step of each kind, and one more for each kInterval steps, up to the limits that follow.
  static constexpr int64_t kInterval = 50;
  static constexpr int64_t kMostTimed = 16;
  static constexpr int64_t kMostHealth = 3;
  static constexpr int64_t kMostHealthWithDynamics = 8;  ///< beside the first step
  static constexpr int64_t kMostSharpness = 5;

  /// With `dynamics`, the first step and the ends of up to eight parts are for health, before steps are timed.
  explicit TelemetrySchedule(int64_t total_steps, bool dynamics = false);

  /// Steps count from 1.
  [[nodiscard]] bool is_timed(int64_t step) const { return timed_.contains(step); }
  [[nodiscard]] bool is_for_health(int64_t step) const { return health_.contains(step); }
  /// The first, the last, and up to three others of the steps for health; none without dynamics.
  [[nodiscard]] bool is_for_sharpness(int64_t step) const { return sharpness_.contains(step); }
  [[nodiscard]] const std::set<int64_t>& timed() const { return timed_; }
  [[nodiscard]] const std::set<int64_t>& health() const { return health_; }

 private:
  std::set<int64_t> timed_;
  std::set<int64_t> health_;  ///< with the last step, unless the run has only one
  std::set<int64_t> sharpness_;
};

/// Makes the record of a training run: TrainerOptions::observer. Training gives the same bits with and without it.
/// Examined steps take longer; the schedule keeps their share of a run small, unless the run is short.
class TelemetryRecorder : public train::StepObserver {
 public:
  /// With `dynamics`, samples have them: see HealthSample::dynamics. Each sharpness is printed, too.
  explicit TelemetryRecorder(const DynamicsParts& dynamics = {}, const PowerIteration& sharpness = {})
      : dynamics_(dynamics), power_iteration_(sharpness) {}

  void start(const train::ObservedRun& run) override;
  std::unique_ptr<train::ObservedStep> begin_step(int64_t step) override;
  void end_step(int64_t step, double loss, double seconds) override;
  void evaluated(int64_t step, const train::Evaluation& test) override;

  /// The record so far.
  [[nodiscard]] Telemetry result() const;

  /// All that resume() needs to go on with the record in another process. Times have six digits.
  [[nodiscard]] nlohmann::ordered_json state() const;
  /// Call it before start(). Throws Error that begins with `where` for anything but a state().
  void resume(const nlohmann::json& state, const std::string& where);

 private:
  using Clock = std::chrono::steady_clock;
  [[nodiscard]] double seconds_since_start() const;
  [[nodiscard]] Throughput throughput() const;
  [[nodiscard]] StepTime step_time() const;

  /// Measures the sharpness, and prints it.
  Sharpness measure_sharpness();

  DynamicsParts dynamics_;
  PowerIteration power_iteration_;
  Clock::time_point start_ = Clock::now();
  double seconds_before_ = 0;  ///< of the run before start()
  bool resumed_ = false;
  std::optional<LayerTable> table_;
  std::optional<train::ObservedRun> run_;
  TelemetrySchedule schedule_{0};
  int64_t steps_per_point_ = 1;
  bool is_due_ = false;  ///< a step for health has begun, and given no sample
  bool sharpness_is_due_ = false;
  bool looks_late_ = false;          ///< this step is for health in the place of one before
  double seconds_of_sharpness_ = 0;  ///< since start_; no part of the run
  // The unfinished point of the loss curve.
  double loss_sum_ = 0;
  int64_t loss_count_ = 0;
  int64_t last_step_ = 0;
  std::vector<double> step_seconds_;
  std::vector<bool> looked_into_;  ///< per step in the list above; also the first ones of a resumed run
  std::vector<StepTime> times_;    ///< of each timed step
  Telemetry record_;
};

}  // namespace norma::lab

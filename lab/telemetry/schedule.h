#pragma once

#include <cstdint>
#include <set>

namespace norma::lab {

/// Chooses the steps of a run to examine. They are spread evenly over it; a longer run has more of them, up to a limit.
/// The choice depends only on step numbers, so that two runs of one recipe have the same. A step is timed or its
/// numbers are read, never both, since reading takes time.
class TelemetrySchedule {
 public:
  /// Steps for each examined step of a kind (at least one), and the most of them.
  static constexpr int64_t kInterval = 50;
  static constexpr int64_t kMostTimed = 16;
  static constexpr int64_t kMostHealth = 3;

  explicit TelemetrySchedule(int64_t total_steps);

  /// Steps count from 1.
  [[nodiscard]] bool is_timed(int64_t step) const { return timed_.contains(step); }
  [[nodiscard]] bool is_for_health(int64_t step) const { return health_.contains(step); }
  [[nodiscard]] const std::set<int64_t>& timed() const { return timed_; }
  [[nodiscard]] const std::set<int64_t>& health() const { return health_; }

 private:
  std::set<int64_t> timed_;
  std::set<int64_t> health_;  ///< with the last step, unless the run has only one
};

}  // namespace norma::lab

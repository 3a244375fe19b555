#pragma once

#include <cstdint>
#include <set>

namespace norma::lab {

/// Which steps of a run are looked into: spread evenly over it, more of them the longer it is, up to a number. It knows
/// only the numbers of the steps, so that two runs of one recipe are looked into at the same ones. A step is timed or
/// its numbers are looked at, never both: looking takes time.
class TelemetrySchedule {
 public:
  /// Steps for each look of a kind (one at least), and the most looks there are.
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
  std::set<int64_t> health_;  ///< the last step among them, unless the run has only one
};

}  // namespace norma::lab

#include "lab/telemetry/schedule.h"

#include <algorithm>

namespace norma::lab {

TelemetrySchedule::TelemetrySchedule(int64_t total_steps) {
  const int64_t looks = 1 + total_steps / kInterval;
  const int64_t timed = std::min(kMostTimed, looks);
  for (int64_t i = 0; i < timed; ++i) {  // the middles of equal parts of the run
    timed_.insert(std::max<int64_t>(1, total_steps * (2 * i + 1) / (2 * timed)));
  }
  const int64_t health = std::min(kMostHealth, looks);
  for (int64_t i = 1; i <= health; ++i) {  // their ends
    const int64_t step = total_steps * i / health;
    if (step > 0 && !timed_.contains(step)) {
      health_.insert(step);
    }
  }
}

}  // namespace norma::lab

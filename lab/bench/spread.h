#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace norma::lab::bench {

/// The durations of repeated runs, in seconds.
struct Spread {
  double min = 0;
  double median = 0;
  double mean = 0;
  double max = 0;
  int64_t count = 0;
};

/// The spread of these; all zero for no values.
Spread spread_of(const std::vector<double>& seconds);

/// The index of the middle value (the lower of two); `values` must not be empty.
size_t median_index(const std::vector<double>& values);

using Clock = std::chrono::steady_clock;

inline double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

}  // namespace norma::lab::bench

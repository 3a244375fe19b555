#pragma once

#include "core/random.h"
#include "session/progress.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <numeric>
#include <utility>
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
inline Spread spread_of(const std::vector<double>& seconds) {
  if (seconds.empty()) {
    return {};
  }
  const auto [low, high] = std::ranges::minmax(seconds);
  return {.min = low,
          .median = train::median(seconds),
          .mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size()),
          .max = high,
          .count = std::ssize(seconds)};
}

/// The index of the middle value (the lower of two); `values` must not be empty.
inline size_t median_index(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return values[i]; });
  return order[(order.size() - 1) / 2];
}

using Clock = std::chrono::steady_clock;

inline double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

inline double seconds_since(Clock::time_point start) {
  return seconds_between(start, Clock::now());
}

/// The order in which `count` programs take their turns in a round. It changes each round, so that no program is always
/// the first, far from another one, or after the same one.
inline std::vector<size_t> turn_order(size_t count, uint64_t round) {
  std::vector<size_t> order(count);
  std::iota(order.begin(), order.end(), size_t{0});
  Generator random(round);
  for (size_t left = count; left > 1; --left) {
    std::swap(order[left - 1], order[random.below(left)]);
  }
  return order;
}

}  // namespace norma::lab::bench

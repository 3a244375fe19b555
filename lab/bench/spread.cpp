#include "lab/bench/spread.h"

#include "session/progress.h"

#include <algorithm>
#include <numeric>

namespace norma::lab::bench {

Spread spread_of(const std::vector<double>& seconds) {
  if (seconds.empty()) {
    return {};
  }
  const auto [low, high] = std::minmax_element(seconds.begin(), seconds.end());
  return {.min = *low,
          .median = train::median(seconds),
          .mean = std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size()),
          .max = *high,
          .count = static_cast<int64_t>(seconds.size())};
}

size_t median_index(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  return order[(order.size() - 1) / 2];
}

}  // namespace norma::lab::bench

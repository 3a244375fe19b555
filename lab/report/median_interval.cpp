#include "lab/report/median_interval.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace norma::lab {

MedianInterval median_interval(std::vector<double> values, double errors) {
  if (values.empty()) {
    return {};
  }
  std::sort(values.begin(), values.end());
  const size_t count = values.size();
  const auto n = static_cast<double>(count);
  const auto log_probability = [n](double k) {  // of B = k
    return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) - n * std::log(2.0);
  };
  size_t k = 0;
  for (double below = std::exp(log_probability(0)); below <= errors / 2;) {  // of B <= k
    ++k;
    below += std::exp(log_probability(static_cast<double>(k)));
  }
  const size_t first = k == 0 ? 0 : k - 1;
  return {.median = count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2,
          .low = values[first],
          .high = values[count - 1 - first],
          .count = static_cast<int64_t>(count),
          .sure = k > 0};
}

}  // namespace norma::lab

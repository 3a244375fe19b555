#include "lab/report/median_interval.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace norma::lab {

namespace {

/// Two-sided: 2 P(B <= the smaller number), for B of the binomial distribution of both together and 1/2.
double sign_test(std::ptrdiff_t above, std::ptrdiff_t under) {
  const auto n = static_cast<double>(above + under);
  double chance = 0;
  for (std::ptrdiff_t i = 0; i <= std::min(above, under); ++i) {
    const auto k = static_cast<double>(i);
    chance += 2 * std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) - n * std::log(2.0));
  }
  return std::min(chance, 1.0);
}

}  // namespace

MedianInterval median_interval(std::vector<double> values) {
  if (values.empty()) {
    return {};
  }
  std::sort(values.begin(), values.end());
  const size_t count = values.size();
  const auto n = static_cast<double>(count);
  const auto log_probability = [n](double k) {  // of B = k
    return std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) - n * std::log(2.0);
  };
  constexpr double kTail = 0.025;
  size_t k = 0;
  for (double below = std::exp(log_probability(0)); below <= kTail;) {  // of B <= k
    ++k;
    below += std::exp(log_probability(static_cast<double>(k)));
  }
  const size_t first = k == 0 ? 0 : k - 1;
  const auto above = std::count_if(values.begin(), values.end(), [](double value) { return value > 0; });
  const auto under = std::count_if(values.begin(), values.end(), [](double value) { return value < 0; });
  return {.median = count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2,
          .low = values[first],
          .high = values[count - 1 - first],
          .count = static_cast<int64_t>(count),
          .sure = k > 0,
          .chance = sign_test(above, under)};
}

}  // namespace norma::lab

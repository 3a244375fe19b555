#pragma once

#include <cstdint>
#include <vector>

namespace norma::lab {

/// The median of some values, and an interval for the median of their distribution.
struct MedianInterval {
  double median = 0;
  double low = 0;
  double high = 0;
  int64_t count = 0;
  bool sure = false;  ///< true iff the interval holds that median with the requested probability

  /// True iff the values do not show that the median differs from `value`.
  [[nodiscard]] bool holds(double value) const { return !sure || (low <= value && value <= high); }
};

/// The interval goes from the k-th value to the k-th from the end. k is the largest with P(B < k) <= errors / 2, for B
/// of the binomial distribution of n values and 1/2: then it holds the median with a probability of at least 1 -
/// errors, for any distribution of the values. With too few values (fewer than six for 0.05) it goes from the least to
/// the largest, and is not sure. All zero for no values; none may be NaN.
MedianInterval median_interval(std::vector<double> values, double errors = 0.05);

}  // namespace norma::lab

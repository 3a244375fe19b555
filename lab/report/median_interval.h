#pragma once

#include <cstdint>
#include <vector>

namespace norma::lab {

/// The median of some values, and where that of all values that could have come lies.
struct MedianInterval {
  double median = 0;
  double low = 0;
  double high = 0;
  int64_t count = 0;
  bool sure = false;  ///< whether the interval holds that median with a probability of 95 % or more; six values can
  double chance = 1;  ///< that values whose median is 0 lie so much to one side of it: the sign test, two-sided

  /// True iff the values do not show that the median is another one than `value`.
  [[nodiscard]] bool holds(double value) const { return !sure || (low <= value && value <= high); }
};

/// The interval goes from the k-th value to the k-th from the end, with the largest k for which it is sure:
/// P(B < k) <= 2.5 % for B of the binomial distribution of n values and 1/2. Nothing is assumed of how the values are
/// distributed. Of fewer than six values, from the least to the largest. All zero for no values; none may be NaN.
MedianInterval median_interval(std::vector<double> values);

}  // namespace norma::lab

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
  bool sure = false;  ///< whether the interval is as probable to hold that median as was asked for

  /// True iff the values do not show that the median is another one than `value`.
  [[nodiscard]] bool holds(double value) const { return !sure || (low <= value && value <= high); }
};

/// The interval goes from the k-th value to the k-th from the end, with the largest k for which it is sure:
/// P(B < k) <= errors / 2 for B of the binomial distribution of n values and 1/2: it holds the median with a
/// probability of 1 - errors or more. Nothing is assumed of how the values are distributed. Of too few values (fewer
/// than six for 0.05), from the least to the largest, and not sure. All zero for no values; none may be NaN.
MedianInterval median_interval(std::vector<double> values, double errors = 0.05);

}  // namespace norma::lab

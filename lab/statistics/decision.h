#pragma once

#include "lab/statistics/scatter.h"

#include <cstdint>
#include <vector>

namespace norma::lab {

/// The difference between a norm and its reference, measured in pairs: runs with the same seed, or steps of the same
/// round.
///
/// A report calls a difference found by one rule: if the interval leaves out 0. Intervals are as wide as the number of
/// tests requires (Bonferroni), so that all intervals of one question hold together in 95 of 100 comparisons. p is
/// multiplied by that number, and is below 0.05 exactly where a difference is found.
struct Decision {
  enum class State : uint8_t {
    waiting,     ///< pairs may still come; to decide before would add a test for each look
    unknown,     ///< too few pairs, or all alike: their scatter is unknown
    none_found,  ///< the interval holds 0
    found,
  };

  State state = State::waiting;
  int64_t pairs = 0;    ///< measured pairs
  int64_t planned = 0;  ///< planned pairs
  // The members below are known only in the last two states.
  double difference = 0;
  double low = 0;
  double high = 0;
  double chance = 1;   ///< p of decide_by_mean(), times the number of tests, at most 1
  bool equal = false;  ///< shown to be within kEqualPoints (decide_by_mean())
  bool cut = false;    ///< the interval ends where differences of accuracy can be no larger (Scatter::possible)

  [[nodiscard]] bool known() const { return state == State::none_found || state == State::found; }
  [[nodiscard]] bool found() const { return state == State::found; }
};

/// Differences of accuracy within so many points count as none.
inline constexpr double kEqualPoints = 0.3;
/// The probability that any test of one question errs, without real differences.
inline constexpr double kErrors = 0.05;

/// The probability of an error that each of so many tests may have (Bonferroni).
inline double level_of(int64_t tests) {
  return kErrors / static_cast<double>(tests);
}

/// Decides by the mean of the differences (half_width()), for few pairs with about normal differences. Expects 1 test
/// or more. A found difference may be `equal`, too: it is there, and small.
Decision decide_by_mean(const Scatter& scatter, int64_t tests);

/// Decides by the median of the differences and their ranks, for any distribution. Needs fewest_rounds() pairs. Expects
/// 1 test or more, and no NaN.
Decision decide_by_median(const std::vector<double>& differences, int64_t tests);

/// The fewest pairs with which decide_by_median() can find a difference among this many tests: six for one.
int64_t fewest_rounds(int64_t tests);

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

#pragma once

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
  double chance = 1;  ///< p of decide_by_mean(), times the number of tests, at most 1

  [[nodiscard]] bool known() const { return state == State::none_found || state == State::found; }
  [[nodiscard]] bool found() const { return state == State::found; }
};

/// Decides by the mean of the differences and Student's t, for few pairs with about normal differences. Expects 1 test
/// or more.
Decision decide_by_mean(const std::vector<double>& differences, int64_t tests);

/// Decides by the median of the differences and their ranks, for any distribution. Needs fewest_rounds() pairs. Expects
/// 1 test or more, and no NaN.
Decision decide_by_median(const std::vector<double>& differences, int64_t tests);

/// The fewest pairs with which decide_by_median() can find a difference among this many tests: six for one.
int64_t fewest_rounds(int64_t tests);

}  // namespace norma::lab

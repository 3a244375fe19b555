#pragma once

#include <cstdint>
#include <vector>

namespace norma::lab {

/// What is known of the difference between a norm and its reference, measured in pairs: runs with the same seed, or
/// steps of the same round.
///
/// All that a report says of a difference follows from one rule: it is found where the interval leaves out 0. Intervals
/// are as wide as the number of tests asks for (Bonferroni), so that all those of one question hold together in 95 of
/// 100 comparisons; p is multiplied by that number, and is below 0.05 exactly where a difference is found.
struct Decision {
  enum class State : uint8_t {
    waiting,     ///< pairs are missing that may still come; to decide before would be a test more for each look
    unknown,     ///< the pairs are too few, or all alike: then nobody knows how far others would lie apart
    none_found,  ///< the interval holds 0
    found,
  };

  State state = State::waiting;
  int64_t pairs = 0;    ///< that were measured
  int64_t planned = 0;  ///< pairs that shall be measured
  // What follows is known in the last two states only.
  double difference = 0;
  double low = 0;
  double high = 0;
  double chance = 1;  ///< p of decide_by_mean(), times the number of tests, at most 1

  [[nodiscard]] bool known() const { return state == State::none_found || state == State::found; }
  [[nodiscard]] bool found() const { return state == State::found; }
};

/// By the mean of the differences, and Student's t. For few pairs whose differences are about normal.
/// Expects 1 test or more.
Decision decide_by_mean(const std::vector<double>& differences, int64_t tests);

/// By the median of the differences and their ranks, whatever they are distributed like. Needs fewest_rounds() pairs.
/// Expects 1 test or more, and no NaN.
Decision decide_by_median(const std::vector<double>& differences, int64_t tests);

/// The fewest pairs by which decide_by_median() can find a difference among so many tests: six for one.
int64_t fewest_rounds(int64_t tests);

}  // namespace norma::lab

#include "lab/report/decision.h"

#include "lab/report/median_interval.h"
#include "lab/report/student_t.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace norma::lab {

namespace {

constexpr double kErrors = 0.05;  ///< of all tests of a question together

double level_of(int64_t tests) {
  return kErrors / static_cast<double>(tests);
}

/// The rule for every difference in a report.
void decide(Decision& decision) {
  const bool finite = std::isfinite(decision.low) && std::isfinite(decision.high);
  const bool holds_zero = decision.low <= 0 && decision.high >= 0;
  decision.state = !finite      ? Decision::State::unknown
                   : holds_zero ? Decision::State::none_found
                                : Decision::State::found;
}

}  // namespace

Decision decide_by_mean(const std::vector<double>& differences, int64_t tests) {
  const auto pairs = static_cast<int64_t>(differences.size());
  Decision decision{.state = Decision::State::unknown, .pairs = pairs, .planned = pairs};
  if (pairs < 2) {
    return decision;
  }
  const auto count = static_cast<double>(pairs);
  const double mean = std::accumulate(differences.begin(), differences.end(), 0.0) / count;
  double squares = 0;
  for (const double difference : differences) {
    squares += (difference - mean) * (difference - mean);
  }
  const double standard_error = std::sqrt(squares / (count - 1) / count);
  if (!(standard_error > 1e-12 * std::abs(mean))) {  // all are the same, but for rounding; or NaN
    return decision;
  }
  const double half = student_t(pairs - 1, level_of(tests)) * standard_error;
  decision.difference = mean;
  decision.low = mean - half;
  decision.high = mean + half;
  decision.chance = std::min(1.0, static_cast<double>(tests) * student_t_chance(pairs - 1, mean / standard_error));
  decide(decision);
  return decision;
}

Decision decide_by_median(const std::vector<double>& differences, int64_t tests) {
  const MedianInterval interval = median_interval(differences, level_of(tests));
  Decision decision{.state = Decision::State::unknown, .pairs = interval.count, .planned = interval.count};
  if (!interval.sure) {
    return decision;
  }
  decision.difference = interval.median;
  decision.low = interval.low;
  decision.high = interval.high;
  decide(decision);
  return decision;
}

int64_t fewest_rounds(int64_t tests) {
  int64_t rounds = 1;
  while (2 * std::ldexp(1.0, -static_cast<int>(rounds)) > level_of(tests)) {
    ++rounds;
  }
  return rounds;
}

}  // namespace norma::lab

#include "lab/statistics/statistics.h"

#include "base/error.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace norma::lab {

namespace {

/// The rule for every difference in a report.
void decide(Decision& decision) {
  const bool finite = std::isfinite(decision.low) && std::isfinite(decision.high);
  const bool holds_zero = decision.low <= 0 && decision.high >= 0;
  decision.state = !finite      ? Decision::State::unknown
                   : holds_zero ? Decision::State::none_found
                                : Decision::State::found;
}

}  // namespace

Decision decide_by_mean(const Scatter& scatter, int64_t tests) {
  Decision decision{.state = Decision::State::unknown, .pairs = scatter.seeds, .planned = scatter.seeds};
  const double deviation = std::sqrt(scatter.seed_variance);
  if (scatter.seeds < 2 || !std::isfinite(scatter.difference) ||
      !(deviation > 1e-12 * std::abs(scatter.difference))) {  // all are the same, but for rounding; or NaN
    return decision;
  }
  const Interval interval = interval_of(scatter, scatter.seeds, level_of(tests));
  decision.difference = scatter.difference;
  decision.low = interval.low;
  decision.high = interval.high;
  decision.cut = interval.low == scatter.possible.low || interval.high == scatter.possible.high;
  decision.chance = std::min(1.0, static_cast<double>(tests) * chance_of(scatter));
  decision.equal = is_within(scatter, scatter.seeds, kEqualPoints, level_of(tests));
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

MedianInterval median_interval(std::vector<double> values, double errors) {
  if (values.empty()) {
    return {};
  }
  std::ranges::sort(values);
  const size_t count = values.size();
  size_t k = 0;  // by halving, as P(B < k) grows with it
  for (size_t beyond = count; beyond - k > 1;) {
    const size_t middle = (k + beyond) / 2;
    const bool sure = heads_at_most(static_cast<int64_t>(count), static_cast<int64_t>(middle) - 1) <= errors / 2;
    (sure ? k : beyond) = middle;
  }
  const size_t first = k == 0 ? 0 : k - 1;
  return {.median = count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2,
          .low = values[first],
          .high = values[count - 1 - first],
          .count = static_cast<int64_t>(count),
          .sure = k > 0};
}

Mcnemar mcnemar(const train::ImageBits& first, const train::ImageBits& second) {
  check(first.size() == second.size(), "mcnemar", "second: expected bits of {} images, as first has, got {}",
        first.size(), second.size());
  Mcnemar result;
  for (size_t i = 0; i < first.size(); ++i) {
    result.only_first += first[i] && !second[i] ? 1 : 0;
    result.only_second += second[i] && !first[i] ? 1 : 0;
  }
  const int64_t divided = result.only_first + result.only_second;
  if (divided > 0) {
    result.chance = std::min(1.0, 2 * heads_at_most(divided, std::min(result.only_first, result.only_second)));
  }
  return result;
}

Interval interval_of(const Mcnemar& test, int64_t images, double chance) {
  const int64_t divided = test.only_first + test.only_second;
  if (divided == 0) {
    return {};
  }
  const auto [low, high] = heads_interval(divided, test.only_first, chance);
  const double points = 100 * static_cast<double>(divided) / static_cast<double>(images);
  return {.low = (2 * low - 1) * points, .high = (2 * high - 1) * points};
}

}  // namespace norma::lab

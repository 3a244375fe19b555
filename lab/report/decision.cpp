#include "lab/report/decision.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
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

/// The integral of cos(a)^power from 0 to `end`, by parts: the integral for power n is cos^(n-1) sin / n plus (n-1) / n
/// of the integral for power n - 2.
double integral_of_cosine(int64_t power, double end) {
  const double cosine = std::cos(end);
  double integral = power % 2 == 0 ? end : std::sin(end);
  double factor = power % 2 == 0 ? cosine : cosine * cosine;  // cos^(n-1)
  for (int64_t n = power % 2 == 0 ? 2 : 3; n <= power; n += 2) {
    const auto exponent = static_cast<double>(n);
    integral = factor * std::sin(end) / exponent + (exponent - 1) / exponent * integral;
    factor *= cosine * cosine;
  }
  return integral;
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

double student_t(int64_t freedom, double chance) {
  // With t = sqrt(n) * tan(a), a has a density in proportion to cos(a)^(n - 1).
  constexpr double kRight = std::numbers::pi / 2;
  const double all = integral_of_cosine(freedom - 1, kRight);
  double low = 0;
  double high = kRight;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (1 - integral_of_cosine(freedom - 1, middle) / all > chance ? low : high) = middle;
  }
  return std::sqrt(static_cast<double>(freedom)) * std::tan(low);
}

double student_t_chance(int64_t freedom, double t) {
  const double angle = std::atan(std::abs(t) / std::sqrt(static_cast<double>(freedom)));
  return 1 - integral_of_cosine(freedom - 1, angle) / integral_of_cosine(freedom - 1, std::numbers::pi / 2);
}

}  // namespace norma::lab

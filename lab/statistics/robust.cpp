#include "lab/statistics/robust.h"

#include "lab/statistics/distributions.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace norma::lab {

namespace {

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

double interquartile_mean(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const auto cut = static_cast<std::ptrdiff_t>(values.size() / 4);
  return mean_of({values.begin() + cut, values.end() - cut});
}

double probability_of_improvement(const std::vector<double>& first, const std::vector<double>& second) {
  double better = 0;
  for (const double a : first) {
    for (const double b : second) {
      better += a > b ? 1 : a == b ? 0.5 : 0;
    }
  }
  return better / static_cast<double>(first.size() * second.size());
}

Quartiles quartiles_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t quarter = values.size() / 4;
  return {.low = values[quarter], .high = values[values.size() - 1 - quarter]};
}

bool are_far_apart(const Quartiles& quartiles, double middle) {
  constexpr double kFarApart = 0.5;
  return quartiles.high - quartiles.low > kFarApart * middle;
}

std::optional<Correlation> correlation_of(const std::vector<double>& first, const std::vector<double>& second,
                                          double chance) {
  const size_t pairs = first.size();
  if (pairs < 2) {
    return std::nullopt;
  }
  const double mean_first = mean_of(first);
  const double mean_second = mean_of(second);
  double squares_first = 0;
  double squares_second = 0;
  double products = 0;
  for (size_t i = 0; i < pairs; ++i) {
    const double a = first[i] - mean_first;
    const double b = second[i] - mean_second;
    squares_first += a * a;
    squares_second += b * b;
    products += a * b;
  }
  constexpr double kRounding = 1e-24;  // of squares of accuracies
  if (squares_first <= kRounding || squares_second <= kRounding) {
    return std::nullopt;
  }
  Correlation result{.value = std::clamp(products / std::sqrt(squares_first * squares_second), -1.0, 1.0)};
  constexpr size_t kFewest = 4;
  if (pairs >= kFewest) {
    const double z = std::atanh(result.value);
    const double half = normal(chance) / std::sqrt(static_cast<double>(pairs) - 3);
    result.low = std::tanh(z - half);
    result.high = std::tanh(z + half);
  }
  return result;
}

}  // namespace norma::lab

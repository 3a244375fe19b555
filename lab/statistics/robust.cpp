#include "lab/statistics/statistics.h"

#include "core/random.h"

#include <boost/math/statistics/bivariate_statistics.hpp>
#include <boost/math/statistics/univariate_statistics.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace norma::lab {

namespace {

constexpr double kPoints = 100;

/// The quantiles that leave out `chance`, between the values next to them as numpy.percentile() takes them.
Interval interval_of(std::vector<double> values, double chance) {
  std::ranges::sort(values);
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(place);
    const size_t above = std::min(below + 1, values.size() - 1);
    return values[below] + (place - std::floor(place)) * (values[above] - values[below]);
  };
  return {.low = at(chance / 2), .high = at(1 - chance / 2)};
}

size_t draw(Generator& random, size_t bound) {
  return static_cast<size_t>(random.below(bound));
}

}  // namespace

double interquartile_mean(std::vector<double> values) {
  std::ranges::sort(values);
  const auto cut = static_cast<std::ptrdiff_t>(values.size() / 4);
  return std::accumulate(values.begin() + cut, values.end() - cut, 0.0) /
         (static_cast<double>(values.size()) - 2.0 * static_cast<double>(cut));
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

Interval quartiles_of(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t quarter = values.size() / 4;
  return {.low = values[quarter], .high = values[values.size() - 1 - quarter]};
}

bool are_far_apart(const Interval& quartiles, double middle) {
  constexpr double kFarApart = 0.5;
  return quartiles.high - quartiles.low > kFarApart * middle;
}

std::optional<Correlation> correlation_of(const std::vector<double>& first, const std::vector<double>& second,
                                          double chance) {
  namespace statistics = boost::math::statistics;
  const size_t pairs = first.size();
  constexpr double kRounding = 1e-24;  // of squares of accuracies
  if (pairs < 2) {
    return std::nullopt;
  }
  const double first_square = statistics::variance(first);
  const double second_square = statistics::variance(second);
  if (std::min(first_square, second_square) * static_cast<double>(pairs) <= kRounding) {
    return std::nullopt;
  }
  const double value = statistics::covariance(first, second) / std::sqrt(first_square * second_square);
  Correlation result{.value = std::clamp(value, -1.0, 1.0)};
  constexpr size_t kFewest = 4;
  if (pairs >= kFewest) {
    const double z = std::atanh(result.value);
    const double half = normal(chance) / std::sqrt(static_cast<double>(pairs) - 3);
    result.low = std::tanh(z - half);
    result.high = std::tanh(z + half);
  }
  return result;
}

Interval bootstrap_difference(const std::vector<ImageDifferences>& differences, const BootstrapOptions& options) {
  const size_t seeds = differences.size();
  const size_t images = differences.front().size();
  // Most images divide no pair of networks: they are drawn, and add nothing. The others stand together, each with its
  // seeds.
  std::vector<int32_t> dividing;
  for (size_t i = 0; i < images; ++i) {
    if (std::ranges::any_of(differences, [i](const ImageDifferences& one) { return one[i] != 0; })) {
      for (const ImageDifferences& one : differences) {
        dividing.push_back(one[i]);
      }
    }
  }
  const size_t places = dividing.size() / seeds;
  if (places == 0) {
    return {};
  }
  // How many images that divide no pair are drawn before the next that does: of a geometric distribution.
  const double log_others = std::log1p(-static_cast<double>(places) / static_cast<double>(images));
  const auto passed_over = [&](Generator& random) { return std::floor(std::log(1 - random.uniform()) / log_others); };
  Generator random(options.seed);
  std::vector<double> means;
  std::vector<int64_t> sums(seeds);  // of the drawn images, for each seed
  for (int64_t sample = 0; sample < options.resamples; ++sample) {
    std::ranges::fill(sums, 0);
    for (double drawn = passed_over(random); drawn < static_cast<double>(images); drawn += 1 + passed_over(random)) {
      const size_t image = draw(random, places);
      for (size_t seed = 0; seed < seeds; ++seed) {
        sums[seed] += dividing[image * seeds + seed];
      }
    }
    int64_t sum = 0;
    for (size_t i = 0; i < seeds; ++i) {
      sum += sums[draw(random, seeds)];
    }
    means.push_back(kPoints * static_cast<double>(sum) / static_cast<double>(seeds * images));
  }
  return interval_of(std::move(means), options.chance);
}

Interval bootstrap_figure(const std::vector<double>& first, const std::vector<double>& second,
                          const std::function<double(const std::vector<double>&, const std::vector<double>&)>& figure,
                          const BootstrapOptions& options) {
  Generator random(options.seed);
  const auto resampled = [&](const std::vector<double>& values) {
    std::vector<double> drawn(values.size());
    for (double& value : drawn) {
      value = values[draw(random, values.size())];
    }
    return drawn;
  };
  std::vector<double> figures;
  for (int64_t sample = 0; sample < options.resamples; ++sample) {
    const std::vector<double> one = resampled(first);
    figures.push_back(figure(one, resampled(second)));
  }
  return interval_of(std::move(figures), options.chance);
}

}  // namespace norma::lab

#include "lab/statistics/statistics.h"

#include "base/error.h"
#include "base/lists.h"

#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/complement.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

namespace norma::lab {

namespace {

boost::math::students_t_distribution<double> student(int64_t freedom) {
  return boost::math::students_t_distribution<double>(static_cast<double>(freedom));
}

constexpr double kPoints = 100;

/// The variance of the mean over this many seeds, on the same images.
double variance_of_mean(const Scatter& scatter, int64_t seeds) {
  return scatter.seed_variance / static_cast<double>(seeds);
}

}  // namespace

double student_t(int64_t freedom, double chance) {
  return boost::math::quantile(boost::math::complement(student(freedom), chance / 2));
}

double student_t_chance(int64_t freedom, double t) {
  return 2 * boost::math::cdf(boost::math::complement(student(freedom), std::abs(t)));
}

double normal(double chance) {
  return boost::math::quantile(boost::math::complement(boost::math::normal(), chance / 2));
}

double normal_below(double z) {
  return boost::math::cdf(boost::math::normal(), z);
}

double heads_at_most(int64_t tosses, int64_t heads) {
  if (heads < 0) {
    return 0;
  }
  constexpr double kFair = 0.5;
  return boost::math::cdf(boost::math::binomial(static_cast<double>(tosses), kFair), static_cast<double>(heads));
}

std::pair<double, double> heads_interval(int64_t tosses, int64_t heads, double chance) {
  using Binomial = boost::math::binomial_distribution<double>;
  const auto trials = static_cast<double>(tosses);
  const auto successes = static_cast<double>(heads);
  return {Binomial::find_lower_bound_on_p(trials, successes, chance / 2),
          Binomial::find_upper_bound_on_p(trials, successes, chance / 2)};
}

std::optional<double> guessing_margin(int64_t classes, int64_t images) {
  constexpr int64_t kFewestOfClass = 5;
  constexpr double kChance = 0.001;
  if (classes < 2 || images < kFewestOfClass * classes) {
    return std::nullopt;
  }
  const boost::math::chi_squared entropy(static_cast<double>(classes - 1));
  return boost::math::quantile(boost::math::complement(entropy, kChance)) / (2 * static_cast<double>(images));
}

Scatter scatter_of(const std::vector<double>& differences) {
  Scatter scatter{.seeds = static_cast<int64_t>(differences.size())};
  if (differences.empty()) {
    return scatter;
  }
  const auto count = static_cast<double>(differences.size());
  scatter.difference = std::accumulate(differences.begin(), differences.end(), 0.0) / count;
  if (differences.size() > 1) {
    const auto square = [&](double one) { return (one - scatter.difference) * (one - scatter.difference); };
    scatter.seed_variance = sum_of(differences, square) / (count - 1);
  }
  return scatter;
}

Scatter scatter_of(const std::vector<ImageDifferences>& differences) {
  check(!differences.empty() && differences.front().size() > 1, "scatter_of",
        "differences: expected a pair or more with two images or more");
  const size_t images = differences.front().size();
  std::vector<int32_t> of_images(images);
  std::vector<double> of_seeds;
  int64_t squares = 0;  // of all
  for (const ImageDifferences& seed : differences) {
    check(seed.size() == images, "scatter_of", "differences: expected {} images for each pair, got {}", images,
          seed.size());
    int64_t sum = 0;
    for (size_t i = 0; i < images; ++i) {
      sum += seed[i];
      squares += seed[i] * seed[i];
      of_images[i] += seed[i];
    }
    of_seeds.push_back(kPoints * static_cast<double>(sum) / static_cast<double>(images));
  }
  Scatter scatter = scatter_of(of_seeds);
  scatter.images = static_cast<int64_t>(images);
  const auto n = static_cast<double>(differences.size());
  const auto m = static_cast<double>(images);
  const double squared_sums = sum_of(of_images, [](double sum) { return sum * sum; });
  const double mean = scatter.difference / kPoints;
  const double between_images = squared_sums / n - n * m * mean * mean;
  double mean_square = between_images / (m - 1);
  if (n > 1) {  // less what the rest, which is another one for each seed and image, adds to it
    const double between_seeds = (n - 1) * m * scatter.seed_variance / (kPoints * kPoints);
    const double rest = static_cast<double>(squares) - n * m * mean * mean - between_images - between_seeds;
    mean_square -= rest / ((n - 1) * (m - 1));
  }
  scatter.image_variance = std::max(0.0, mean_square) / (n * m) * kPoints * kPoints;
  return scatter;
}

double half_width(const Scatter& scatter, int64_t seeds, double chance) {
  double square = 0;
  if (seeds > 1) {
    const double t = student_t(seeds - 1, chance);
    square += t * t * variance_of_mean(scatter, seeds);
  }
  if (scatter.image_variance > 0) {
    const double z = normal(chance);
    square += z * z * scatter.image_variance;
  }
  return std::sqrt(square);
}

Interval interval_of(const Scatter& scatter, int64_t seeds, double chance) {
  const double half = half_width(scatter, seeds, chance);
  return {.low = std::max(scatter.difference - half, scatter.possible.low),
          .high = std::min(scatter.difference + half, scatter.possible.high)};
}

double chance_of(const Scatter& scatter) {
  const double distance = std::abs(scatter.difference);
  // The seeds alone, or t for both parts, make the least and the largest p.
  const double seeds_alone = distance / std::sqrt(variance_of_mean(scatter, scatter.seeds));
  const double least = student_t_chance(scatter.seeds - 1, seeds_alone);
  if (!(scatter.image_variance > 0) || !(least > 0)) {
    return least;
  }
  constexpr double kLeastLog = -690;  // quantiles of less leave float64
  double low = std::max(std::log(least), kLeastLog);
  double high = 0;
  constexpr int kHalvings = 40;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    (half_width(scatter, scatter.seeds, std::exp(middle)) > distance ? low : high) = middle;
  }
  return std::exp((low + high) / 2);
}

bool is_within(const Scatter& scatter, int64_t seeds, double margin, double chance) {
  return std::abs(scatter.difference) + half_width(scatter, seeds, 2 * chance) < margin;
}

double power_of(const Scatter& scatter, int64_t seeds, double margin, double chance) {
  const double distance = std::abs(scatter.difference);
  const double deviation = std::sqrt(variance_of_mean(scatter, seeds));
  const double shown = normal_below((distance - half_width(scatter, seeds, chance)) / deviation);
  const double room = margin - half_width(scatter, seeds, 2 * chance);
  const double within =
      room > 0 ? normal_below((room - distance) / deviation) - normal_below((-room - distance) / deviation) : 0;
  return std::max(shown, within);
}

Outlook outlook_of(const Scatter& scatter, double margin, double chance) {
  const auto decides = [&](int64_t seeds) { return power_of(scatter, seeds, margin, chance) >= kPower; };
  const double images = std::sqrt(scatter.image_variance);
  const double distance = std::abs(scatter.difference);
  if (images > 0 && distance <= normal(chance) * images && margin - distance <= normal(2 * chance) * images) {
    return {.images_limit = true, .images = scatter.images};
  }
  if (scatter.seeds >= kMostSeeds || !decides(kMostSeeds)) {
    return {.images = scatter.images};
  }
  int64_t too_few = scatter.seeds;
  int64_t enough = kMostSeeds;
  while (enough - too_few > 1) {
    const int64_t middle = (too_few + enough) / 2;
    (decides(middle) ? enough : too_few) = middle;
  }
  return {.more_seeds = enough - scatter.seeds, .images = scatter.images};
}

bool is_harder(const Outlook& a, const Outlook& b) {
  const auto seeds = [](const Outlook& one) { return one.more_seeds.value_or(kMostSeeds); };
  return a.images_limit != b.images_limit ? a.images_limit : seeds(a) > seeds(b);
}

}  // namespace norma::lab

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

// Figures that one strange run does not move much, by the definitions of rliable (Agarwal et al., "Deep reinforcement
// learning at the edge of the statistical precipice", 2021), and the correlation of pairs. No value may be NaN.

namespace norma::lab {

/// The fewest pairs for which reports show the first two figures.
inline constexpr int64_t kSeedsOfRobust = 5;

/// The mean of the middle half: without the lowest and highest quarter, each rounded down to a whole number of values.
/// rliable's aggregate_iqm(), which is scipy.stats.trim_mean(values, 0.25). Expects a value or more.
double interquartile_mean(std::vector<double> values);

/// The probability that a run of `first` is better than one of `second`, ties counting half: rliable's
/// probability_of_improvement() for one task, the statistic of Mann and Whitney over the number of pairs. Expects a
/// value or more in each.
double probability_of_improvement(const std::vector<double>& first, const std::vector<double>& second);

/// The lower and the upper quartile of some values, a value or more.
struct Quartiles {
  double low = 0;
  double high = 0;
};
Quartiles quartiles_of(std::vector<double> values);

/// True iff quartiles lie more than half of the middle value apart: times so far apart say that the machine had other
/// work.
bool are_far_apart(const Quartiles& quartiles, double middle);

/// Pearson's correlation of values in pairs, and its interval by Fisher's z.
struct Correlation {
  double value = 0;
  double low = -1;
  double high = 1;
};

/// How far runs of the same seed move together: at 0, pairs gain nothing over runs of any seeds (Picard, arXiv
/// 2109.08203, and Jordan, arXiv 2304.01910, have found little to gain). The interval leaves out the true correlation
/// with probability `chance`, and goes from -1 to 1 for fewer than four pairs. None for fewer than two, and where one
/// side does not vary.
std::optional<Correlation> correlation_of(const std::vector<double>& first, const std::vector<double>& second,
                                          double chance);

}  // namespace norma::lab

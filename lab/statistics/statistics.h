#pragma once

#include "train/evaluate.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

// The distributions of tests and intervals, from Boost.Math.

// Figures that one strange run does not move much, by the definitions of rliable (Agarwal et al., "Deep reinforcement
// learning at the edge of the statistical precipice", 2021), and the correlation of pairs. No value may be NaN.

namespace norma::lab {

struct Interval {
  double low = 0;
  double high = 0;
};

/// For each image the difference between two networks: 1 where only the first is right, -1 where only the second is,
/// 0 elsewhere. Between two such differences (an interaction) it goes from -2 to 2.
using ImageDifferences = std::vector<int8_t>;

/// The difference between two norms over pairs of runs, in points, and what moves it.
///
/// All runs are tested on the same images, so there are two causes: another seed gives other networks, and another set
/// of test images other answers. More seeds make the first part smaller, and leave the second as it is.
struct Scatter {
  double difference = 0;      ///< mean over the pairs
  double seed_variance = 0;   ///< of the difference from one pair to another, on the same images
  double image_variance = 0;  ///< of `difference`, from one set of as many images to another; 0 where unknown
  int64_t seeds = 0;          ///< pairs
  int64_t images = 0;         ///< 0: the answers for single images are not known
  /// What the difference can be: beside a reference that is right on 45 % of the images, -45 to 55 points.
  Interval possible = {.low = -std::numeric_limits<double>::infinity(),
                       .high = std::numeric_limits<double>::infinity()};
};

/// The scatter of differences in points, one for each pair, when nothing is known of single images.
Scatter scatter_of(const std::vector<double>& differences);

/// The scatter of pairs with their images, one list for each pair, all of one length. Seeds and images are two crossed
/// causes, and their variances come from the mean squares of seeds, images and the rest (Searle, Casella, McCulloch,
/// "Variance components", 1992, chapter 4). With one pair, `image_variance` is of these two networks. Throws Error for
/// no pair, for fewer than two images, and for lists of different lengths.
Scatter scatter_of(const std::vector<ImageDifferences>& differences);

/// Half the width of the interval that leaves out the true difference with probability `chance`, for `seeds` pairs of
/// this scatter: sqrt(t² seed_variance / seeds + z² image_variance), with Student's t for the seeds and the normal
/// distribution for the images. With one pair it has the images' part alone: the interval is of the difference between
/// these two networks.
double half_width(const Scatter& scatter, int64_t seeds, double chance);

/// The interval of that half width around the difference, cut where differences cannot be.
Interval interval_of(const Scatter& scatter, int64_t seeds, double chance);

/// The probability of a difference as large as this one or larger where there is none: the `chance` for which
/// half_width() equals the difference. Expects two pairs or more, whose differences are not all the same.
double chance_of(const Scatter& scatter);

/// True iff the true difference is shown to be less than `margin` points, whatever its sign: two one-sided tests, each
/// wrong with probability `chance` (Schuirmann 1987). Expects two pairs or more.
bool is_within(const Scatter& scatter, int64_t seeds, double margin, double chance);

/// The probability that this many pairs on the same images show a difference, or show that it is less than `margin`,
/// each with errors of probability `chance`; the likelier of both. It takes the measured difference and scatter for the
/// true ones.
double power_of(const Scatter& scatter, int64_t seeds, double margin, double chance);

/// What would decide between two norms that are not decided.
struct Outlook {
  std::optional<int64_t> more_seeds = {};  ///< so that power_of() is kPower; none: more than kMostSeeds in all
  bool images_limit = false;               ///< no number of seeds would: there are too few test images
  int64_t images = 0;                      ///< Scatter::images
};
/// True iff `a` asks for more than `b`: other test images before more seeds, and many seeds before few.
bool is_harder(const Outlook& a, const Outlook& b);

inline constexpr double kPower = 0.8;
inline constexpr int64_t kMostSeeds = 1000;
Outlook outlook_of(const Scatter& scatter, double margin, double chance);

/// The value that |t| exceeds with probability `chance`, for Student's t with this many degrees of freedom (1 or more).
double student_t(int64_t freedom, double chance);

/// The inverse: the probability of a |t| as large as this one's, or larger.
double student_t_chance(int64_t freedom, double t);

/// The value that |z| exceeds with probability `chance`, for a standard normal z.
double normal(double chance);

/// The probability that a standard normal number is at most z.
double normal_below(double z);

/// The probability of at most this many heads in tosses of a fair coin; 0 for fewer than 0.
double heads_at_most(int64_t tosses, int64_t heads);

/// The least and the largest probability of a head that such tosses leave possible, each with `chance` / 2 (Clopper and
/// Pearson, 1934): 1/2 lies outside exactly where twice heads_at_most() of the rarer side is below `chance`.
std::pair<double, double> heads_interval(int64_t tosses, int64_t heads, double chance);

/// How far the loss of an answer that is the same for all images may lie below log(classes), on so many images: by no
/// more than their labels' entropy, and 2 · images · (log(classes) - entropy) follows χ² with classes - 1 degrees of
/// freedom where all classes are equally frequent. One sample of 1000 goes further. None for fewer than two classes,
/// and for fewer than five images of each, where χ² does not hold.
std::optional<double> guessing_margin(int64_t classes, int64_t images);

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
};

/// The interval goes from the k-th value to the k-th from the end. k is the largest with P(B < k) <= errors / 2, for B
/// of the binomial distribution of n values and 1/2: then it holds the median with a probability of at least 1 -
/// errors, for any distribution of the values. With too few values (fewer than six for 0.05) it goes from the least to
/// the largest, and is not sure. All zero for no values; none may be NaN.
MedianInterval median_interval(std::vector<double> values, double errors = 0.05);

/// A paired test of two networks on the same images: images that both get right, or both wrong, say nothing.
struct Mcnemar {
  int64_t only_first = 0;   ///< images that only the first gets right
  int64_t only_second = 0;  ///< images that only the second gets right
  double chance = 1;        ///< the p-value: of a division at least as uneven if no network is better
};

/// McNemar's test in its exact form: the two-sided sign test on the images that divide the networks. Says whether these
/// two networks differ, and nothing of other seeds. Throws Error for different numbers of images.
Mcnemar mcnemar(const train::ImageBits& first, const train::ImageBits& second);

/// The interval of the difference in points over so many images, given how many divide the networks. It leaves out 0
/// exactly where the test's p is below `chance`.
Interval interval_of(const Mcnemar& test, int64_t images, double chance);

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
Interval quartiles_of(std::vector<double> values);

/// True iff quartiles lie more than half of the middle value apart: times so far apart say that the machine had other
/// work.
bool are_far_apart(const Interval& quartiles, double middle);

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

struct BootstrapOptions {
  int64_t resamples = 1000;
  double chance = 0.05;  ///< what the interval leaves out on both sides together
  uint64_t seed = 0;     ///< of the drawing
};

/// The interval of the mean difference in points, by drawing seeds and images together, both with replacement (Owen,
/// "The pigeonhole bootstrap", 2007): quantiles of the resampled means. It assumes no distribution, and with few seeds
/// it is too narrow, since what it draws from varies less than what it stands for: docs/statistics.md has how often it
/// holds. Expects lists of one length, and a pair or more.
Interval bootstrap_difference(const std::vector<ImageDifferences>& differences, const BootstrapOptions& options = {});

/// The interval of a figure of two samples, each drawn by itself, as rliable does with the runs of a task.
Interval bootstrap_figure(const std::vector<double>& first, const std::vector<double>& second,
                          const std::function<double(const std::vector<double>&, const std::vector<double>&)>& figure,
                          const BootstrapOptions& options = {});

}  // namespace norma::lab

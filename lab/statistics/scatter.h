#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

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

}  // namespace norma::lab

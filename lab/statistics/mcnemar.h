#pragma once

#include "lab/statistics/scatter.h"
#include "train/evaluate.h"

#include <cstdint>

namespace norma::lab {

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

}  // namespace norma::lab

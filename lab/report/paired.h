#pragma once

#include "lab/report/report.h"
#include "lab/statistics/scatter.h"

#include <cstdint>
#include <vector>

namespace norma::lab {

/// Finished runs of a norm and of its reference with the same seed.
struct PairedRun {
  const Cell* norm;
  const Cell* reference;
};

/// The pairs of two rows of a comparison, which must outlive them.
struct PairedRuns {
  std::vector<PairedRun> runs;
  int64_t planned = 0;   ///< pairs, finished or not
  bool waiting = false;  ///< a run of one of the rows may still come
};
PairedRuns paired_runs(const Comparison& comparison, const Settings& row, const Settings& reference);

/// The right and wrong answers of each pair, image by image; empty unless all pairs have them, for the same number of
/// images.
std::vector<ImageDifferences> image_differences(const std::vector<PairedRun>& runs);

/// The scatter of the differences of accuracy, with the images where they are known.
Scatter scatter_of(const std::vector<PairedRun>& runs);

/// The scatter of an interaction: of the differences at `to` less those at `from`, over the seeds that both have. Where
/// the test images are the same ones, their differences are taken image by image; else both sets of images move the
/// result, one after the other.
Scatter scatter_between(const std::vector<PairedRun>& from, const std::vector<PairedRun>& to);

}  // namespace norma::lab

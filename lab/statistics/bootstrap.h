#pragma once

#include "lab/statistics/scatter.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace norma::lab {

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

#pragma once

#include <cstdint>
#include <vector>

/// What a norm has to know about the elements that share a mean.
struct RowStatistics {
  double mean = 0;
  double var = 0;   ///< the mean of (x - mean)²
  double rstd = 0;  ///< 1 / sqrt(var + eps)
};

/// The statistics of the `count` numbers that begin at x.
RowStatistics statistics_of(const double* x, int64_t count, double eps);

/// The layer norm of one row: y[i] = (x[i] - mean) * rstd * weight[i] + bias[i]. All have the same length.
std::vector<double> layer_norm_of(const std::vector<double>& x, const std::vector<double>& weight,
                                  const std::vector<double>& bias, double eps);

/// The sizes of a batch of images in NCHW, in the order of memory.
struct ImageSizes {
  int64_t n = 1;
  int64_t c = 1;
  int64_t h = 1;
  int64_t w = 1;
};

/// Group norm: in each image, `groups` groups of c / groups neighbouring channels, each with a mean of its own. weight
/// and bias have an element for each channel.
std::vector<double> group_norm_of(const std::vector<double>& x, const ImageSizes& sizes, int64_t groups,
                                  const std::vector<double>& weight, const std::vector<double>& bias, double eps);

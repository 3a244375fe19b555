#pragma once

#include "core/tensor.h"

#include <string_view>

namespace norma::norm_detail {

/// Running statistics, and the batch that they take in: see kernels::RunningStatistics.
struct RunningUpdate {
  Tensor mean;  ///< (C), as var
  Tensor var;
  double momentum = 0;
  double var_factor = 1;
  Tensor batches = {};  ///< int64, one element, or undefined
};

/// running = (1 - momentum) * running + momentum * factor * batch. Both have sizes (C); computed in float64.
void update_running(std::string_view op, const Tensor& running, const Tensor& batch, double momentum, double factor);

/// Adds one to the number of batches that running statistics have seen; undefined: nobody counts.
void count_batch(Tensor batches);

/// The stats (kernels.h) of a norm with constants: mean and biased variance, one per channel (rank 1).
Tensor fixed_stats_of(std::string_view op, const Tensor& mean, const Tensor& var, double eps, DType dtype);

}  // namespace norma::norm_detail

#pragma once

#include "core/tensor.h"

#include <string_view>

namespace norma::norm_detail {

/// running = (1 - momentum) * running + momentum * factor * batch. Both have sizes (C); computed in float64.
void update_running(std::string_view op, const Tensor& running, const Tensor& batch, double momentum, double factor);

/// The stats (kernels.h) of a norm with constants: mean and biased variance, one per channel (rank 1).
Tensor fixed_stats_of(std::string_view op, const Tensor& mean, const Tensor& var, double eps, DType dtype);

}  // namespace norma::norm_detail

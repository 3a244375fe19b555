#pragma once

#include "ops/norm/spec.h"

#include "core/tensor.h"

namespace norma {

// Liu, Brock, Simonyan and Le, "Evolving normalization-activation layers", 2020, as timm has them: norm and
// nonlinearity in one, so that nothing needs to follow. What holds for every norm (norm.h) holds for these. x: (N, C,
// …) of rank 3 to 5; v, weight and bias: (C), of which v must be given. Differentiable any number of times.

struct EvoNormB0Options {
  bool training = true;
  double momentum = 0.1;
  double eps = 1e-3;
  Statistics statistics = Statistics::stable;
  Activation activation = Activation::identity;  ///< applied to y; relu costs no pass and no memory of its own
};
/// y = x / max(sqrt(var_batch + eps), v * x + sqrt(var_instance + eps)) * weight + bias, with the biased variances over
/// N and all axes behind the channels, and over those axes alone. running_var: (C) or undefined; takes the unbiased
/// variance of the batch when training and stands in for var_batch when not (undefined: var_batch is used then too).
/// There is no running mean. An empty batch leaves it alone. The maximum passes the gradient on to the larger of the
/// two denominators. Where they differ by less than their dtype can say (a large eps), rounding decides which that is.
/// Throws Error in training for a single value per channel.
Tensor evo_norm_b0(const Tensor& x, const Tensor& running_var, const Tensor& v, const Tensor& weight = {},
                   const Tensor& bias = {}, const EvoNormB0Options& options = {});

struct EvoNormS0Options {
  double eps = 1e-5;
  Statistics statistics = Statistics::stable;
  Activation activation = Activation::identity;  ///< applied to y; relu costs no pass and no memory of its own
};
/// y = x * sigmoid(v * x) / sqrt(var_group + eps) * weight + bias, with the biased variance over a group of C /
/// num_groups channels and all axes behind them. timm has 32 groups by default. The mean is not subtracted.
Tensor evo_norm_s0(const Tensor& x, int64_t num_groups, const Tensor& v, const Tensor& weight = {},
                   const Tensor& bias = {}, const EvoNormS0Options& options = {});

}  // namespace norma

#pragma once

#include "ops/norm/spec.h"

#include "core/tensor.h"

namespace norma {

// EvoNorm (Liu, Brock, Simonyan and Le, "Evolving normalization-activation layers", 2020), as in timm: norm and
// nonlinearity in one, so that no activation needs to follow. The rules of every norm (norm.h) hold here. x: (N, C, …)
// of rank 3 to 5; v, weight and bias: (C), of which v must be given. Differentiable any number of times.

struct EvoNormB0Options {
  bool training = true;
  double momentum = 0.1;
  double eps = 1e-3;
  Statistics statistics = Statistics::stable;
  Activation activation = Activation::identity;  ///< applied to y; relu costs no pass and no memory of its own
};
/// EvoNorm B0: y = x / max(sqrt(var_batch + eps), v * x + sqrt(var_instance + eps)) * weight + bias. var_batch is over
/// N and all axes behind the channels, var_instance over those axes alone; both are biased. running_var: (C) or
/// undefined. Training writes the batch's unbiased variance to it, but an empty batch leaves it alone; evaluation uses
/// it for var_batch unless it is undefined. There is no running mean. The gradient of the maximum goes to the larger
/// denominator. If the two differ by less than their dtype can say (a large eps), rounding decides. Throws Error in
/// training for a single value per channel.
Tensor evo_norm_b0(const Tensor& x, const Tensor& running_var, const Tensor& v, const Tensor& weight = {},
                   const Tensor& bias = {}, const EvoNormB0Options& options = {});

struct EvoNormS0Options {
  double eps = 1e-5;
  Statistics statistics = Statistics::stable;
  Activation activation = Activation::identity;  ///< applied to y; relu costs no pass and no memory of its own
};
/// EvoNorm S0: y = x * sigmoid(v * x) / sqrt(var_group + eps) * weight + bias, with the biased variance over C /
/// num_groups channels and all axes behind them. timm has 32 groups by default. The mean is not subtracted.
Tensor evo_norm_s0(const Tensor& x, int64_t num_groups, const Tensor& v, const Tensor& weight = {},
                   const Tensor& bias = {}, const EvoNormS0Options& options = {});

}  // namespace norma

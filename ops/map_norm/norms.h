#pragma once

#include "core/tensor.h"
#include "ops/norm/spec.h"

#include <cstdint>

// The norms with a formula of their own. The rules of every norm (ops/norm/norm.h) hold for each, and each can be
// differentiated any number of times.

namespace norma {

struct BoundedNormOptions {
  int64_t axis = 1;  ///< along which weight and bias lie; the papers' code has the last one by default
  Activation activation = Activation::identity;  ///< applied to y; relu costs no pass and no memory of its own
};
/// Dynamic tanh (DyT; Zhu et al., "Transformers without normalization", 2025) takes the place of a norm:
/// y = tanh(alpha * x) * weight + bias. alpha: one number, [1] or [], which the paper's layer starts at 0.5; weight,
/// bias: (x.size(axis)) or undefined.
Tensor dynamic_tanh(const Tensor& x, const Tensor& alpha, const Tensor& weight = {}, const Tensor& bias = {},
                    const BoundedNormOptions& options = {});
/// Dynamic erf (Derf; Chen et al., "Stronger normalization-free transformers", 2025):
/// y = erf(alpha * x + shift) * weight + bias. alpha, shift: one number each, [1] or [], which the paper's layer starts
/// at 0.5 and 0; weight, bias: (x.size(axis)) or undefined.
Tensor dynamic_erf(const Tensor& x, const Tensor& alpha, const Tensor& shift, const Tensor& weight = {},
                   const Tensor& bias = {}, const BoundedNormOptions& options = {});

struct SeedNormOptions {
  double eps = 1e-6;                             ///< rms2d's
  int64_t axis = 1;                              ///< of the channels; the paper has the last one
  Activation activation = Activation::identity;  ///< applied to y
};
/// Self-rescaled dynamic normalization (SeeDNorm; Cai, Zhu, Liu and Min, arXiv 2510.22777, 2025): RMS norm over the
/// channels, whose scale depends on the input,
/// y = (weight + tanh(s) * alpha) * x / sqrt(mean(x²) + eps), s = sum of x * beta over the channels,
/// so that s and the mean are one number for each pixel (or row, for an axis of -1). weight (the paper's gamma), alpha
/// and beta: (x.size(axis)); the layer starts at 1, 1 and 0, where it is an RMS norm. It is composed of other ops,
/// and backward keeps a tensor beside x, both in float32 for x of 16 bits.
Tensor seed_norm(const Tensor& x, const Tensor& weight, const Tensor& alpha, const Tensor& beta,
                 const SeedNormOptions& options = {});

// EvoNorm (Liu, Brock, Simonyan and Le, "Evolving normalization-activation layers", 2020), as in timm: norm and
// nonlinearity in one, so that no activation needs to follow. x: (N, C, …)
// of rank 3 to 5; v, weight and bias: (C), of which v must be given.

struct EvoNormB0Options {
  bool training = true;
  double momentum = 0.1;
  double eps = 1e-3;
  Statistics statistics = Statistics::stable;
  Activation activation = Activation::identity;  ///< applied to y; relu costs no pass and no memory of its own
};
/// EvoNorm B0: y = x / max(sqrt(var_batch + eps), v * x + sqrt(var_instance + eps)) * weight + bias. var_batch is over
/// N and all axes after the channels, var_instance over those axes alone; both are biased. running_var: (C) or
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
/// num_groups channels and all axes after them. timm has 32 groups by default. The mean is not subtracted.
Tensor evo_norm_s0(const Tensor& x, int64_t num_groups, const Tensor& v, const Tensor& weight = {},
                   const Tensor& bias = {}, const EvoNormS0Options& options = {});

struct FilterResponseNormOptions {
  double eps = 1e-5;                             ///< timm's; the paper has 1e-6
  Activation activation = Activation::identity;  ///< applied to y; relu costs no pass and no memory of its own
};
/// Filter response norm (Singh and Krishnan, 2020), as in timm: x (N, C, …) of rank 3 to 5,
/// y = max(x / sqrt(mean(x²) + eps) * weight + bias, tau), with the mean over all axes after the channels. weight,
/// bias and tau, the threshold (TLU): (C) or undefined; without tau nothing is cut off. The paper also learns eps if
/// there is one pixel.
Tensor filter_response_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}, const Tensor& tau = {},
                            const FilterResponseNormOptions& options = {});

struct GlobalResponseNormOptions {
  double eps = 1e-6;
  Activation activation = Activation::identity;  ///< applied to y; relu costs no pass and no memory of its own
};
/// Global response norm (Woo et al., "ConvNeXt V2", 2023): x (N, C, …) of rank 3 to 5, y = x + weight * (x * n) + bias,
/// n = g / (mean of g over the channels + eps), g = sqrt(sum of x² after the channels). weight, bias: (C) or
/// undefined; the network starts with both 0, so that y = x. A map of zeros has no gradient through its g, as in
/// PyTorch's norm(); the formula alone would give NaN. The paper's code calls the parameters gamma and beta and keeps
/// them along the last axis.
Tensor global_response_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                            const GlobalResponseNormOptions& options = {});

struct LocalResponseNormOptions {
  double alpha = 1e-4;
  double beta = 0.75;
  double k = 1;
  Activation activation = Activation::identity;  ///< applied to y; relu costs no pass and no memory of its own
};
/// Local response norm (Krizhevsky, Sutskever and Hinton, 2012), as in PyTorch: x (N, C, …) of rank 3 or more,
/// y = x / (k + alpha / size * sum of x² over a window of `size` channels) ^ beta.
/// Channel c sees c - size / 2 to c + (size - 1) / 2, one more below than above for an even size; channels that do not
/// exist count as 0. Caffe and cuDNN also divide alpha by the size; the paper and TensorFlow do not, and TensorFlow
/// counts a radius and has other defaults (radius 5, alpha 1, beta 0.5). Throws Error for a size below 1.
Tensor local_response_norm(const Tensor& x, int64_t size, const LocalResponseNormOptions& options = {});

}  // namespace norma

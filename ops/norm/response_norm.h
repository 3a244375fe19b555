#pragma once

#include "core/tensor.h"
#include "ops/norm/spec.h"

#include <cstdint>

namespace norma {

// Norms that divide a response by what its neighbours, its own map or all maps respond. What holds for every norm
// (norm.h) holds for these: bfloat16 and float16 are computed in float32 and rounded once, parameters have the input's
// dtype or float32, the output keeps the input's dtype and memory format, and all are differentiable any number of
// times.

struct LocalResponseNormOptions {
  double alpha = 1e-4;
  double beta = 0.75;
  double k = 1;
  Activation activation = Activation::identity;  ///< applied to y; relu costs no pass and no memory of its own
};
/// Krizhevsky, Sutskever and Hinton, 2012, as PyTorch has it: x (N, C, …) of rank 3 or more,
/// y = x / (k + alpha / size * sum of x² over a window of `size` channels) ^ beta.
/// Channel c sees c - size / 2 to c + (size - 1) / 2, one more below than above for an even size; channels that do not
/// exist count as 0. Caffe and cuDNN divide alpha by the size too; the paper and TensorFlow do not, and TensorFlow
/// counts a radius and has other defaults (radius 5, alpha 1, beta 0.5). Throws Error for a size below 1.
Tensor local_response_norm(const Tensor& x, int64_t size, const LocalResponseNormOptions& options = {});

struct FilterResponseNormOptions {
  double eps = 1e-5;                             ///< timm's; the paper has 1e-6
  Activation activation = Activation::identity;  ///< applied to y; relu costs no pass and no memory of its own
};
/// Singh and Krishnan, 2020, as timm has it: x (N, C, …) of rank 3 to 5,
/// y = max(x / sqrt(mean(x²) + eps) * weight + bias, tau), with the mean over all axes behind the channels. weight,
/// bias and tau, the threshold (TLU): (C) or undefined; without tau nothing is cut off. The paper learns eps too where
/// there is one pixel.
Tensor filter_response_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}, const Tensor& tau = {},
                            const FilterResponseNormOptions& options = {});

struct GlobalResponseNormOptions {
  double eps = 1e-6;
  Activation activation = Activation::identity;  ///< applied to y; relu costs no pass and no memory of its own
};
/// Woo et al., "ConvNeXt V2", 2023: x (N, C, …) of rank 3 to 5,
/// y = x + weight * (x * n) + bias, n = g / (mean of g over the channels + eps), g = sqrt(sum of x² behind the
/// channels). weight, bias: (C) or undefined; the network starts with both 0, so that y = x. A map of zeros has no
/// gradient through its g, as in PyTorch's norm(); without that care it would be NaN. In the paper's code the
/// parameters are called gamma and beta, and lie along the last axis.
Tensor global_response_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                            const GlobalResponseNormOptions& options = {});

}  // namespace norma

#pragma once

#include "core/tensor.h"
#include "ops/norm/spec.h"

namespace norma {

struct GlobalResponseNormOptions {
  double eps = 1e-6;
  Activation activation = Activation::identity;  ///< applied to y; relu costs no pass and no memory of its own
};
/// Global response norm (Woo et al., "ConvNeXt V2", 2023): x (N, C, …) of rank 3 to 5, y = x + weight * (x * n) + bias,
/// n = g / (mean of g over the channels + eps), g = sqrt(sum of x² behind the channels). weight, bias: (C) or
/// undefined; the network starts with both 0, so that y = x. A map of zeros has no gradient through its g, as in
/// PyTorch's norm(); the formula alone would give NaN. The paper's code calls the parameters gamma and beta and keeps
/// them along the last axis. The rules of every norm (ops/norm/norm.h) hold here.
Tensor global_response_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                            const GlobalResponseNormOptions& options = {});

}  // namespace norma

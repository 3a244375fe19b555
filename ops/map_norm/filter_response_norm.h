#pragma once

#include "core/tensor.h"
#include "ops/norm/spec.h"

namespace norma {

struct FilterResponseNormOptions {
  double eps = 1e-5;                             ///< timm's; the paper has 1e-6
  Activation activation = Activation::identity;  ///< applied to y; relu costs no pass and no memory of its own
};
/// Filter response norm (Singh and Krishnan, 2020), as in timm: x (N, C, …) of rank 3 to 5,
/// y = max(x / sqrt(mean(x²) + eps) * weight + bias, tau), with the mean over all axes behind the channels. weight,
/// bias and tau, the threshold (TLU): (C) or undefined; without tau nothing is cut off. The paper also learns eps if
/// there is one pixel. The rules of every norm (ops/norm/norm.h) hold here.
Tensor filter_response_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}, const Tensor& tau = {},
                            const FilterResponseNormOptions& options = {});

}  // namespace norma

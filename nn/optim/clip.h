#pragma once

#include "core/tensor.h"
#include "ops/reduce/reduce.h"

namespace norma::nn {

/// Clips by norm, as torch.nn.utils.clip_grad_norm_: scales all gradients down to `max_norm` if their 2-norm together
/// is larger. Returns that norm, a float64 number of rank 0 on their device. The sum is carried in float64 in a fixed
/// order. The host does not wait for the device: the factor is computed there, and the host reads the norm only when it
/// asks for item(). A norm of NaN leaves the gradients as they are, where PyTorch makes all of them NaN; an infinite
/// one makes them 0, and those that are infinite NaN, as in PyTorch. Throws Error unless max_norm > 0.
Tensor clip_grad_norm_(const Tensors& parameters, double max_norm);
/// Clamps every element of the gradients to ±`limit`, as torch.nn.utils.clip_grad_value_. Throws Error for a limit
/// below 0.
void clip_grad_value_(const Tensors& parameters, double limit);

struct AdaptiveClipOptions {
  double factor = 0.01;  ///< the largest norm of a unit's gradient, as a share of the norm of its weights
  double eps = 1e-3;     ///< the norm of smaller weights counts as this
};
/// Adaptive gradient clipping (Brock et al., "High-performance large-scale image recognition without normalization",
/// 2021), as timm's adaptive_clip_grad. A unit is an index of the first axis (an output channel); a parameter of rank 0
/// or 1 is one unit. The gradient g of a unit with weights w becomes g · factor · max(|w|, eps) / |g| if its norm |g|
/// is not below factor · max(|w|, eps). 16-bit tensors are computed in float32.
void adaptive_clip_grad(const Tensors& parameters, const AdaptiveClipOptions& options = {});

/// x over the largest |number| along some axes: squares of it, and sums of them, stay within its dtype.
struct ScaledByLargest {
  Tensor quotient;  ///< 0 where all are 0
  Tensor largest;
};
ScaledByLargest scaled_by_largest(const Tensor& x, const Axes& axes = {}, const ReduceOptions& options = {});

}  // namespace norma::nn

#pragma once

#include "core/tensor.h"

namespace norma {

/// Matrix product of (…, M, K) and (…, K, N) over broadcast leading axes: (…, M, N), contiguous. Rank 2 or more.
/// float32 and float64, any strides (transposed operands are not copied). Differentiable, also twice.
/// NORMA_MATMUL=onednn|eigen forces an implementation.
Tensor matmul(const Tensor& a, const Tensor& b);

/// x · weightᵀ + bias over the last axis: x (…, in), weight (out, in), bias (out) or undefined; result (…, out).
/// The result keeps the order in which x's axes lie in memory when its last axis is innermost (so the NHWC view of a
/// channels_last tensor stays one). Differentiable, also twice.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

}  // namespace norma

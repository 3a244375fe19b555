#pragma once

#include "core/tensor.h"
#include "ops/pointwise/activation.h"

#include <string>
#include <vector>

namespace norma {

/// Matrix product of (…, M, K) and (…, K, N) over broadcast leading axes: (…, M, N), contiguous. A vector (rank 1) is a
/// row on the left and a column on the right, and the result lacks that axis: (K) and (…, K, N) give (…, N), (…, M, K)
/// and (K) give (…, M), two vectors a number of rank 0. Floating dtypes (16-bit ones are summed in float32 and rounded
/// once), any strides (transposed operands are not copied). Differentiable, also twice.
Tensor matmul(const Tensor& a, const Tensor& b);

/// Linear layer: x · weightᵀ + bias over the last axis: x (…, in), weight (out, in), bias (out) or undefined; result
/// (…, out). If x has no gaps and its last axis is innermost, the result keeps the order of x's axes (so the NHWC view
/// of a channels_last tensor stays one). Differentiable, also twice.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {});

/// The steps of linear_act() after the product.
struct LinearActOptions {
  Tensor scale = {};  ///< (out), a factor for each output feature, or undefined
  Activation activation = Activation::identity;
  Tensor residual = {};  ///< sizes and dtype of the result, or undefined
};

/// linear() with an epilogue: activation(scale * linear(x) + residual). If no gradient is recorded, a library that can
/// does it in one kernel, so that no part of it costs a pass over memory (float32; the error of oneDNN's gelu is at
/// most 1e-6 max(1, |y|), and its relu makes 0 of NaN). Otherwise separate ops do it, and the scale multiplies weight
/// and bias. Throws what linear() throws, and Error for a scale or a residual of other sizes or dtype.
Tensor linear_act(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearActOptions& then);

/// Names of the implementations of matmul() and linear() for tensors on `device`, in the order they are tried: the
/// first that supports the case computes it. Small products go to Eigen. NORMA_MATMUL=onednn|eigen forces one.
std::vector<std::string> matmul_implementations(Device device = default_device());
/// Forces an implementation for this process, in all cases that it supports; "" returns to the order. Throws Error for
/// a name that this build lacks.
void set_matmul_implementation(const std::string& name, Device device = default_device());

}  // namespace norma

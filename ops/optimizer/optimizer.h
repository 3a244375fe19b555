#pragma once

#include "core/tensor.h"
#include "ops/optimizer/kernels.h"

namespace norma {

// The memory work of optimizers and gradient clipping, off the tape: each function is one pass over dense tensors.
// nn/optim/ decides the numbers. All tensors of a call lie on one device.

/// One step of SGD, on a parameter and its velocity (undefined: none); kernels::SgdStep has the formula. float32 and
/// float64; dense, with the strides of the parameter. The caller bumps the parameter's version.
void sgd_step(const Tensor& parameter, const Tensor& gradient, const Tensor& velocity, const kernels::SgdStep& step);
/// One step of AdamW, on a parameter and its two averages; kernels::AdamWStep has the formula.
void adamw_step(const Tensor& parameter, const Tensor& gradient, const Tensor& average, const Tensor& square_average,
                const kernels::AdamWStep& step);

/// The sum of the squares of each tensor: float64 (tensors), on `device`. Any floating dtype and strides. Throws Error
/// for a tensor on another device.
Tensor sums_of_squares(const Tensors& xs, Device device);
/// The clipping of gradients with these sums of squares, on their device: float64 (2), the norm of all of them and the
/// factor that brings it down to max_norm, at most 1; see kernels::OptimizerKernels::clipping.
Tensor clipping_of(const Tensor& sums, double max_norm);
/// x = factor · x, in place, for a factor of one float64 number on x's device. Any floating dtype and strides. `op`
/// names it in profiles and errors.
void scale_in_place(std::string_view op, const Tensor& x, const Tensor& factor);
/// Cuts every element off at ±limit, in place; NaN stays.
void cut_off_in_place(std::string_view op, const Tensor& x, double limit);

}  // namespace norma

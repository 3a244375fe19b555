#pragma once

#include "core/tensor.h"
#include "ops/optimizer/kernels.h"

#include <vector>

namespace norma {

// The memory work of optimizers and gradient clipping, off the tape: each function is one pass over all tensors of a
// list, no two of which share elements. nn/optim/ decides the numbers. Where `changing` of an update is not null, it
// lies on the device, and its numbers count when the device comes to the step, in the place of `step`. `guard` is two
// float64 numbers on the device: unless both are finite, a step changes nothing; undefined: it always does.

/// A parameter with its gradient and its averages: float32 or float64, dense, all with the strides, dtype and device of
/// the parameter.
template <class Step>
struct StepUpdate {
  Tensor parameter;
  Tensor gradient;
  Tensor average;         ///< of SGD: the velocity; undefined: none
  Tensor square_average;  ///< of SGD: undefined
  Step step;
  const Step* changing = nullptr;
};
using SgdUpdate = StepUpdate<kernels::SgdStep>;
using AdamWUpdate = StepUpdate<kernels::AdamWStep>;
using LambUpdate = StepUpdate<kernels::LambStep>;

/// One step of SGD, or of AdamW; kernels::SgdStep and kernels::AdamWStep have the formulas. The caller bumps the
/// versions of the parameters. Throws Error for a gradient on another device.
void sgd_step(const std::vector<SgdUpdate>& updates, const Tensor& guard = {});
void adamw_step(const std::vector<AdamWUpdate>& updates, const Tensor& guard = {});
/// One step of LAMB for gradients that are divided by `divisor`, one float64 number on their device (undefined: 1);
/// kernels::LambStep has the formula. The caller bumps the versions of the parameters. Throws Error unless all
/// tensors lie on one device.
void lamb_step(const std::vector<LambUpdate>& updates, const Tensor& divisor, const Tensor& guard = {});

/// average = average + share · (value - average) for each pair of float32 or float64, for a share of one float64 number
/// on their device; where it is 1, and for other dtypes, average = value. The tensors of a pair are dense and lie
/// alike. Throws Error unless they do.
void average_into(const Tensors& averages, const Tensors& values, const Tensor& share, const Tensor& guard = {});

/// The sum of the squares of each tensor: float64 (tensors), on `device`. Any floating dtype and strides. Throws Error
/// for a tensor on another device.
Tensor sums_of_squares(const Tensors& xs, Device device);
/// The clipping of gradients with these sums of squares, on their device: float64 (2), the norm of all of them and the
/// factor that brings it down to max_norm, at most 1; see kernels::OptimizerKernels::clipping.
Tensor clipping_of(const Tensor& sums, double max_norm);
/// x = factor · x for each tensor, in place, for a factor of one float64 number on their device. Any floating dtype and
/// strides. `op` names it in profiles and errors. Throws Error for a tensor on another device.
void scale_in_place(std::string_view op, const Tensors& xs, const Tensor& factor);
/// Cuts every element of each tensor off at ±limit, in place; NaN stays. Any floating dtype, strides and device.
void cut_off_in_place(std::string_view op, const Tensors& xs, double limit);

}  // namespace norma

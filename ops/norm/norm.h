#pragma once

#include "core/tensor.h"
#include "ops/norm/spec.h"

namespace norma {

// Every norm is one op. Same meaning everywhere:
//  - the biased variance normalises; the unbiased variance goes into running statistics;
//  - running = (1 - momentum) * running + momentum * batch;
//  - eps stands inside the root; statistics are float32 or wider;
//  - an absent weight is 1, an absent bias is 0;
//  - the output keeps the input's memory format;
//  - backward returns the gradients of input, weight and bias, in that order.
// float32 and float64, any strides. Differentiable, also twice.

/// What normalize() computed besides the output, for each set of reduced elements, in row-major order of the sets.
struct NormStatistics {
  Tensor mean;  ///< without the rest of the pivot: rounded to the statistics' dtype
  Tensor var;   ///< biased
};

/// Normalises x by statistics taken from x itself. weight and bias: sizes of x along spec.affine, or undefined.
/// `statistics`, if given, receives mean and variance (off the tape).
/// Throws Error for axes out of range or repeated, groups that do not divide axis 1, and misshapen weight or bias.
Tensor normalize(const Tensor& x, const NormSpec& spec, const Tensor& weight = {}, const Tensor& bias = {},
                 NormStatistics* statistics = nullptr, std::string_view op = "normalize");

struct BatchNormOptions {
  bool training = true;
  double momentum = 0.1;
  double eps = 1e-5;
  Statistics statistics = Statistics::stable;
};
/// Ioffe and Szegedy, 2015. x: (N, C, …), rank 2 to 5; statistics of each channel over all other axes. weight, bias:
/// (C) or undefined. running_mean, running_var: (C) or undefined; updated in place when training, used instead of batch
/// statistics when not training (both undefined: batch statistics are used then too). Throws Error in training for a
/// single value per channel.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight = {},
                  const Tensor& bias = {}, const BatchNormOptions& options = {});

struct LayerNormOptions {
  double eps = 1e-5;
  Statistics statistics = Statistics::stable;
};
/// Ba, Kiros and Hinton, 2016: statistics over the last normalized_shape.size() axes, whose sizes those must be.
Tensor layer_norm(const Tensor& x, const Sizes& normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                  const LayerNormOptions& options = {});
/// Layer norm over the channels of (N, C, H, W), at each pixel, without permuting. weight, bias: (C). The default eps
/// is 1e-6, as in ConvNeXt.
Tensor layer_norm_2d(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                     const LayerNormOptions& options = {.eps = 1e-6});

struct GroupNormOptions {
  double eps = 1e-5;
  Statistics statistics = Statistics::stable;
};
/// Wu and He, 2018: x (N, C, …), statistics over C / num_groups channels and all axes behind. weight, bias: (C).
Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight = {}, const Tensor& bias = {},
                  const GroupNormOptions& options = {});

struct InstanceNormOptions {
  double eps = 1e-5;
  Statistics statistics = Statistics::stable;
};
/// Ulyanov et al., 2016: x (N, C, …), statistics over all axes behind the channels. weight, bias: (C).
Tensor instance_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                     const InstanceNormOptions& options = {});

}  // namespace norma

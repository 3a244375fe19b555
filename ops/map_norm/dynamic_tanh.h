#pragma once

#include "core/tensor.h"
#include "ops/norm/spec.h"

namespace norma {

struct DynamicTanhOptions {
  int64_t axis = 1;  ///< along which weight and bias lie; the paper's code has the last one by default
  Activation activation = Activation::identity;  ///< applied to y; relu costs no pass and no memory of its own
};
/// Dynamic tanh (DyT; Zhu et al., "Transformers without normalization", 2025) takes the place of a norm:
/// y = tanh(alpha * x) * weight + bias. alpha: one number, [1] or [], which the paper's layer starts at 0.5; weight,
/// bias: (x.size(axis)) or undefined. The rules of every norm (norm.h) hold here. Differentiable any number of times.
Tensor dynamic_tanh(const Tensor& x, const Tensor& alpha, const Tensor& weight = {}, const Tensor& bias = {},
                    const DynamicTanhOptions& options = {});

}  // namespace norma

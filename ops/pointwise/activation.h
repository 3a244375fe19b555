#pragma once

#include "core/tensor.h"

#include <cstdint>
#include <string_view>

namespace norma {

/// The activation that may follow a norm or a convolution in the same op.
enum class Activation : uint8_t { identity, relu, gelu, silu };

std::string_view to_string(Activation activation);

/// relu(x), gelu(x), silu(x) of pointwise.h, or x itself for identity.
Tensor activate(const Tensor& x, Activation activation);

/// The steps after a norm or a convolution f in the same op: y = activation(f(x) + residual).
struct ActOptions {
  Activation activation = Activation::identity;
  Tensor residual = {};  ///< sizes and dtype of f(x), or undefined
};

/// activation(x + residual), in ops of their own. bfloat16 and float16 are computed in float32 and rounded once. Under
/// an Autocast the residual is converted to x's dtype. Throws Error "op: residual: …" for one of other sizes or dtype.
Tensor activate(const Tensor& x, const ActOptions& then, std::string_view op = "norm_act");

// The gradients dy * f'(x) of activations in differentiable functions. Ops that apply an activation themselves use them
// for higher derivatives.

Tensor relu_backward(const Tensor& x, const Tensor& dy);
Tensor silu_backward(const Tensor& x, const Tensor& dy);
/// The gradient of the exact gelu; f'(x) = Phi(x) + x phi(x).
Tensor gelu_backward(const Tensor& x, const Tensor& dy);

}  // namespace norma

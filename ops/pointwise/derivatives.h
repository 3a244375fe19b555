#pragma once

#include "core/tensor.h"

namespace norma {

// The gradients dy * f'(x) of activations in differentiable functions. Ops that apply an activation themselves use them
// for higher derivatives.

Tensor relu_backward(const Tensor& x, const Tensor& dy);
Tensor silu_backward(const Tensor& x, const Tensor& dy);
/// The gradient of the exact gelu; f'(x) = Phi(x) + x phi(x).
Tensor gelu_backward(const Tensor& x, const Tensor& dy);

}  // namespace norma

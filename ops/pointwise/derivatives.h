#pragma once

#include "core/tensor.h"

namespace norma {

// dy * f'(x) of activations, written in differentiable functions: for ops that apply an activation themselves and want
// higher derivatives.

Tensor relu_backward(const Tensor& x, const Tensor& dy);
Tensor silu_backward(const Tensor& x, const Tensor& dy);
/// Of the exact gelu: Phi(x) + x phi(x).
Tensor gelu_backward(const Tensor& x, const Tensor& dy);

}  // namespace norma

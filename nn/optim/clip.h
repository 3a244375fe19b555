#pragma once

#include "core/tensor.h"

namespace norma::nn {

/// The 2-norm of all gradients together, a float64 number of rank 0 on their device, as in PyTorch; they are scaled
/// down to `max_norm` where it is larger. The sum is carried in float64 in a fixed order. Nobody waits for a device:
/// the norm is looked at there, and by the host when it asks for item().
Tensor clip_gradients_by_norm(const Tensors& parameters, double max_norm);
/// Cuts every element of the gradients off at ±`limit`.
void clip_gradients_by_value(const Tensors& parameters, double limit);

}  // namespace norma::nn

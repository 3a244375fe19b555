#pragma once

#include "core/tensor.h"

namespace norma::nn {

/// The 2-norm of all gradients together; they are scaled down to `max_norm` where it is larger. The sum is carried
/// in float64 in a fixed order.
double clip_gradients_by_norm(const Tensors& parameters, double max_norm);
/// Cuts every element of the gradients off at ±`limit`.
void clip_gradients_by_value(const Tensors& parameters, double limit);

}  // namespace norma::nn

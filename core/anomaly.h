#pragma once

#include "core/tensor.h"

#include <string_view>

namespace norma {

// The searches of AnomalyGuard (tape.h).

bool anomaly_enabled();
/// Throws Error "op: forward gave NaN …" if a floating output has one.
void check_forward_is_finite(std::string_view op, const Tensors& outputs);
/// Throws Error "op: backward gave NaN …" if a gradient has one.
void check_backward_is_finite(std::string_view op, const Tensors& gradients);

}  // namespace norma

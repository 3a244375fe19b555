#pragma once

#include "core/tensor.h"

namespace norma {

/// Returns a + b for two gradients of one tensor (same sizes and dtype). The result has a's strides, or b's where only
/// those are dense. The tape itself needs this differentiable sum, so it stands below the ops.
Tensor accumulate(const Tensor& a, const Tensor& b);

/// sum += x, off the tape.
void accumulate_into(const Tensor& sum, const Tensor& x);

}  // namespace norma

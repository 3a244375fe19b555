#pragma once

#include "core/tensor.h"

namespace norma {

/// a + b of gradients of one tensor: same sizes and dtype. The result has a's strides, or b's where only those are
/// dense. Differentiable: it is what the tape itself needs, so it stands below the ops.
Tensor accumulate(const Tensor& a, const Tensor& b);

/// sum += x, off the tape.
void accumulate_into(const Tensor& sum, const Tensor& x);

}  // namespace norma

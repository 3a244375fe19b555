#pragma once

#include "ops/conv/conv.h"

namespace norma {

// The two gradients of conv2d are ops of their own. All three ops are linear in each of their two operands, so the
// gradients of each are the other two, and conv2d can be differentiated any number of times.

/// The gradient of conv2d(x, weight) for x of `sizes`, from that of its result. The gradient has `format`.
Tensor conv2d_input_gradient(const Tensor& dy, const Tensor& weight, const Sizes& sizes, const Conv2dOptions& options,
                             MemoryFormat format);

/// The gradient of conv2d(x, weight) for a weight of `sizes`, from that of its result. The gradient has `strides`,
/// which must be dense. x and dy are read in `format`.
Tensor conv2d_weight_gradient(const Tensor& dy, const Tensor& x, const Sizes& sizes, const Strides& strides,
                              const Conv2dOptions& options, MemoryFormat format);

}  // namespace norma

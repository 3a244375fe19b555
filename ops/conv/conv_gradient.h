#pragma once

#include "ops/conv/conv.h"

namespace norma {

// The two gradients of conv2d as ops of their own. All three are linear in each of their two operands, so the gradients
// of each are expressed by the other two, and conv2d can be differentiated any number of times.

/// The gradient of conv2d(x, weight) for x of `sizes`, given that of its result. Result in `format`.
Tensor conv2d_input_gradient(const Tensor& dy, const Tensor& weight, const Sizes& sizes, const Conv2dOptions& options,
                             MemoryFormat format);

/// The gradient of conv2d(x, weight) for a weight of `sizes`, given that of its result. The result has `strides`, which
/// must be dense. x and dy are read in `format`.
Tensor conv2d_weight_gradient(const Tensor& dy, const Tensor& x, const Sizes& sizes, const Strides& strides,
                              const Conv2dOptions& options, MemoryFormat format);

}  // namespace norma

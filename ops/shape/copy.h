#pragma once

#include "core/tensor.h"

namespace norma {

// Differentiable copies, any dtype. The gradient of a copy in another format has the format of x.

/// A new tensor; `preserve` keeps dense strides.
Tensor clone(const Tensor& x, MemoryFormat format = MemoryFormat::preserve);
/// x itself if it is contiguous in `format` by the loose predicate (is_contiguous), else a copy that is.
Tensor contiguous(const Tensor& x, MemoryFormat format = MemoryFormat::contiguous);
/// x itself if its strides are exactly those of `format`, sizes of 1 included, else a copy that has them: unlike
/// contiguous() it re-strides tensors with C = 1 or H = W = 1.
Tensor to(const Tensor& x, MemoryFormat format);
/// x converted to `dtype`; x itself if it has it. The gradient is converted back.
Tensor to(const Tensor& x, DType dtype);
/// x itself if it lies on `device`, else a copy there, with x's strides where those are dense. The gradient goes back
/// to x's device. Throws Error for a device that cannot be used here.
Tensor to(const Tensor& x, Device device);

}  // namespace norma

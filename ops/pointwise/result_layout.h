#pragma once

#include "core/tensor.h"

namespace norma::pointwise {

/// Strides of the result of an elementwise op, by the rule of PyTorch's TensorIterator. The operands broadcast to
/// `sizes`. If all have these sizes: contiguous when all are contiguous, channels_last when all are contiguous in that,
/// and the common strides when those are equal and dense. Otherwise a dense block whose axes stand in the order of the
/// operands' strides: the first operand that is broadcast along neither of two axes decides their order. So NHWC + NCHW
/// is channels_last, NCHW + NHWC contiguous, and a (1, C, 1, 1) operand or a scalar decides nothing.
Strides result_strides(const Sizes& sizes, const Tensors& operands);

/// An uninitialised tensor with result_strides, on the device of the first operand.
Tensor empty_for(const Sizes& sizes, DType dtype, const Tensors& operands);

}  // namespace norma::pointwise

#pragma once

#include "core/tensor.h"

namespace norma::pointwise {

/// Strides of the result of an elementwise op, by the rule of PyTorch's TensorIterator. `sizes` is what the operands
/// broadcast to. If all operands have these sizes: contiguous when all are contiguous, channels_last when all are
/// contiguous in that, and the common strides when those are equal and dense. Otherwise a dense block whose axes stand
/// in the order of the operands' strides: for each pair of axes the first operand decides that is broadcast along
/// neither. So NHWC + NCHW is channels_last, NCHW + NHWC contiguous, and a (1, C, 1, 1) operand or a scalar decides
/// nothing.
Strides result_strides(const Sizes& sizes, const Tensors& operands);

/// An uninitialised tensor with result_strides, on the device of the first operand.
Tensor empty_for(const Sizes& sizes, DType dtype, const Tensors& operands);

}  // namespace norma::pointwise

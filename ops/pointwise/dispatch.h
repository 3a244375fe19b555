#pragma once

#include "core/op.h"
#include "core/tensor.h"
#include "ops/pointwise/kernels.h"

#include <string_view>

namespace norma::pointwise {

using kernels::Binary;
using kernels::Comparison;
using kernels::Operand;
using kernels::Scalars;
using kernels::Unary;

// The public functions of this family share this way from tensors to kernels. Functions record nothing unless noted.

/// x as an operand of a loop over `sizes`, to which it broadcasts.
Operand operand_of(const Tensor& x, const Sizes& sizes);

/// The dtype of the result of a and b: promote(), except that a tensor of rank 0 only counts beside others when its
/// kind (bool, integer, floating) is the higher one, so that a float64 number does not widen a float32 tensor.
DType result_dtype(const Tensor& a, const Tensor& b);

/// b as a tensor of rank 0 beside x. Throws Error for a number that x's integer dtype cannot hold.
Tensor number_operand(std::string_view op, const Tensor& x, double b);

/// Throw Error unless the function exists for the dtype.
void check_dtype_of(std::string_view op, Unary f, DType dtype);
void check_dtype_of(std::string_view op, Binary f, DType dtype);

/// A new tensor f(x).
Tensor unary(const Op& op, Unary f, const Tensor& x, const Scalars& scalars = {});
/// y = f(x), where y may be x.
void unary_into(const Op& op, Unary f, const Tensor& x, const Tensor& y, const Scalars& scalars = {});
/// A new tensor dy * f'(x) in x's strides; `saved` is x or f(x), see kernel_saves_output.
Tensor unary_backward(Unary f, const Tensor& saved, const Tensor& dy, const Scalars& scalars = {});
/// As unary_backward(), for functions made of straight pieces: it is recorded, and linear in dy.
Tensor straight_backward(Unary f, const Tensor& saved, const Tensor& dy, const Scalars& scalars = {});

/// A new tensor f(a, b) of two tensors of one dtype, in the result_strides() of `uncast`: a and b before they were
/// converted to it.
Tensor binary(const Op& op, Binary f, const Tensor& a, const Tensor& b, TensorList uncast);
/// y = f(a, b), where y may be a or b; both broadcast to y's sizes.
void binary_into(const Op& op, Binary f, const Tensor& a, const Tensor& b, const Tensor& y);

/// Sums a gradient over the axes along which an operand of `sizes` was broadcast. Recorded.
Tensor unbroadcast(const Tensor& gradient, const Sizes& sizes);

/// Strides of the result of an elementwise op, by the rule of PyTorch's TensorIterator. The operands broadcast to
/// `sizes`. If all have these sizes: contiguous when all are contiguous, channels_last when all are contiguous in that,
/// and the common strides when those are equal and dense. Otherwise a dense block whose axes stand in the order of the
/// operands' strides: the first operand that is broadcast along neither of two axes decides their order. So NHWC + NCHW
/// is channels_last, NCHW + NHWC contiguous, and a (1, C, 1, 1) operand or a scalar decides nothing.
Strides result_strides(const Sizes& sizes, TensorList operands);

/// An uninitialized tensor with result_strides, on the device of the first operand.
Tensor empty_for(const Sizes& sizes, DType dtype, TensorList operands);

}  // namespace norma::pointwise

#pragma once

#include "core/tensor.h"

namespace norma {

/// Options of a reduction.
struct ReduceOptions {
  bool keepdim = false;  ///< keep the reduced axes with size 1
};

// Reductions over `axes` (negative count from the end; none = all), in a fixed order: the same bits for any number of
// threads. Sums of floating numbers are carried in float64. The result has x's dtype and is contiguous. With keepdim it
// has x's suggested format, strides of axes of size 1 included, so that a mean over H and W of a channels_last tensor
// is strictly channels_last (PyTorch's is not). Gradients have the format of x. All but argmax are differentiable. A
// tensor of rank 0 has axis 0 for them, as in PyTorch, and the result has rank 0, also with keepdim.

/// Sum. Floating dtypes and int64; smaller integers and bool are summed as int64. The sum of nothing is 0.
Tensor sum(const Tensor& x, const Axes& axes = {}, const ReduceOptions& options = {});
/// Mean. Floating dtypes. The mean of nothing is NaN.
Tensor mean(const Tensor& x, const Axes& axes = {}, const ReduceOptions& options = {});

struct VarOptions {
  int64_t correction = 1;  ///< the divisor is count - correction: 1 unbiased, 0 biased
  bool keepdim = false;
};
/// Variance by two passes: mean, then the mean square of the differences. Floating dtypes;
/// 16-bit ones are computed in float32 and rounded once.
/// Throws Error unless more than `correction` elements are reduced.
Tensor var(const Tensor& x, const Axes& axes = {}, const VarOptions& options = {});
/// The largest value; NaN if there is one. Floating dtypes, int64, int32. The gradient is shared equally among equal
/// maxima, as that of PyTorch's amax. Throws Error for the maximum of nothing.
Tensor max(const Tensor& x, const Axes& axes = {}, const ReduceOptions& options = {});
/// The product. Floating dtypes and int64; smaller integers and bool are multiplied as int64, which wraps around. The
/// product of nothing is 1. Floating numbers are carried in float64. Gradients, also second ones, are right where
/// elements are 0; they take log2(count) times the memory of x while they are computed.
Tensor prod(const Tensor& x, const Axes& axes = {}, const ReduceOptions& options = {});

/// Options of searches for a largest value along one axis.
struct ArgmaxOptions {
  bool keepdim = false;  ///< keep the axis with size 1
  bool last = false;     ///< the last of equal values (or of several NaN) instead of the first
};
/// The index of the largest value along one axis, int64; the first of equal ones; NaN counts as largest. No gradient.
/// Floating dtypes, int64, int32. Throws Error when the axis is empty.
Tensor argmax(const Tensor& x, int64_t axis, const ArgmaxOptions& options = {});
/// The largest values along one axis, and their indices.
struct MaxAlong {
  Tensor values;  ///< NaN if there is one
  Tensor index;   ///< as argmax()
};
/// max() and argmax() along one axis. As in PyTorch's max(dim), the whole gradient goes to the element that index
/// names; that of max() is shared among equal maxima.
MaxAlong max_along(const Tensor& x, int64_t axis, const ArgmaxOptions& options = {});
/// Argmax over all elements in row-major order, rank 0.
Tensor argmax(const Tensor& x);

/// Sums x over the axes it was broadcast along, so that the result has `sizes`: the gradient of broadcasting.
Tensor sum_to_size(const Tensor& x, const Sizes& sizes);

}  // namespace norma

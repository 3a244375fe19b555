#pragma once

#include "core/tensor.h"

namespace norma {

/// Options of a reduction.
struct ReduceOptions {
  bool keepdim = false;  ///< keep the reduced axes with size 1
};

// Reductions over `axes` (negative count from the end; none = all), in a fixed order: the same bits for any number of
// threads. float32 and float64 (sum and max also int64 and int32). float32 sums are carried in float64 or by
// pairwise summation. With keepdim on a channels_last input the result has channels_last strides.

Tensor sum(const Tensor& x, const Axes& axes = {}, const ReduceOptions& options = {});
Tensor mean(const Tensor& x, const Axes& axes = {}, const ReduceOptions& options = {});

struct VarOptions {
  int64_t correction = 1;  ///< the divisor is count - correction: 1 unbiased, 0 biased
  bool keepdim = false;
};
/// Variance by two passes: mean, then the mean square of the differences.
Tensor var(const Tensor& x, const Axes& axes = {}, const VarOptions& options = {});
/// The largest value; NaN if there is one. The gradient is shared equally among equal maxima, as PyTorch's amax.
Tensor max(const Tensor& x, const Axes& axes = {}, const ReduceOptions& options = {});
/// Where the largest value along one axis is, int64; the first of equal ones; NaN counts as largest. No gradient.
Tensor argmax(const Tensor& x, int64_t axis, const ReduceOptions& options = {});
/// Argmax over all elements in row-major order, rank 0.
Tensor argmax(const Tensor& x);

/// Sums x over the axes it was broadcast along, so that the result has `sizes`: the gradient of broadcasting.
Tensor sum_to_size(const Tensor& x, const Sizes& sizes);

}  // namespace norma

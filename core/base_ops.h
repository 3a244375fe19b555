#pragma once

#include "core/tensor.h"

// The two differentiable ops that the tape and autocast need. They stand below ops/.

namespace norma {

/// x's values in another dtype, on the tape: backward converts the gradient back, but a dtype that is not floating
/// carries none. The result has x's strides if those are dense; it is x itself if x has the dtype. to() of
/// ops/shape/copy.h does the same.
Tensor cast(const Tensor& x, DType dtype);

/// As cast(), for `values` that are x's values in that dtype already.
Tensor record_cast(const Tensor& x, const Tensor& values);

/// As record_cast(), for a leaf x: its gradient goes on in the dtype of the values, and backward() converts those of
/// all leaves at once.
Tensor record_cast_of_leaf(const Tensor& leaf, const Tensor& values);

/// Returns a + b for two gradients of one tensor (same sizes and dtype). The result has a's strides, or b's where only
/// those are dense.
Tensor accumulate(const Tensor& a, const Tensor& b);

/// sum += x, off the tape.
void accumulate_into(const Tensor& sum, const Tensor& x);

/// accumulate_into(sums[i], xs[i]) for all i. A GPU adds all pairs of the same dtype in a launch or two if the strides
/// of each pair are equal and dense.
void accumulate_all_into(const Tensors& sums, const Tensors& xs);

}  // namespace norma

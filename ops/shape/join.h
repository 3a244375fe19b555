#pragma once

#include "core/tensor.h"

namespace norma {

/// Concatenates tensors along one axis; all other sizes and the dtypes must agree. channels_last iff all inputs suggest
/// it. Differentiable.
Tensor cat(const Tensors& xs, int64_t axis);
/// Stacks tensors of equal sizes along a new axis.
Tensor stack(const Tensors& xs, int64_t axis);

/// Rows of x by number along `axis`; index is int64 of rank 1, each in [0, size). Keeps the memory format.
/// Differentiable in x; gradients of a row taken twice are added in the order of index.
Tensor index_select(const Tensor& x, int64_t axis, const Tensor& index);
/// x[i, index[i]] for every i: x is (N, C), index is (N), int64. The result is (N). Differentiable in x.
Tensor gather_rows(const Tensor& x, const Tensor& index);

}  // namespace norma

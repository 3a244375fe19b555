#pragma once

#include "core/tensor.h"

namespace norma {

// Views: the result shares x's storage and version; no element moves. Any dtype. All are differentiable; the gradient
// of a channels_last tensor is channels_last, whatever its shape was before. Negative axes count from the end.

/// The same elements in the same (row-major) order with other sizes; one size may be -1. Throws Error if x's strides do
/// not allow a view: a new axis would mix old ones that are not one run in memory.
Tensor view(const Tensor& x, const Sizes& sizes);
/// view() if x's strides allow it, else a contiguous copy with these sizes.
Tensor reshape(const Tensor& x, const Sizes& sizes);
/// Merges axes [start, end] into one, as reshape(). Rank 0 counts as one axis of size 1.
Tensor flatten(const Tensor& x, int64_t start = 0, int64_t end = -1);
Tensor permute(const Tensor& x, const Axes& order);
/// Rank 0 counts as one axis of size 1, also in squeeze().
Tensor transpose(const Tensor& x, int64_t a, int64_t b);
/// Repeats axes of size 1 with stride 0; new axes are added in front, those of size 1 with the stride of unsqueeze();
/// -1 keeps a size. Throws Error when the number of elements does not fit into 64 bits.
Tensor expand(const Tensor& x, const Sizes& sizes);
/// Elements start, start + step, … below end of one axis. Negative start and end count from the end. step >= 1.
Tensor slice(const Tensor& x, int64_t axis, int64_t start, int64_t end, int64_t step = 1);
/// slice() by length.
Tensor narrow(const Tensor& x, int64_t axis, int64_t start, int64_t length);
/// narrow() without the tape and without a check, for ops whose own work it is.
Tensor part_of(const Tensor& x, int64_t axis, int64_t start, int64_t length);
/// One index of an axis; the axis disappears.
Tensor select(const Tensor& x, int64_t axis, int64_t index);
Tensor unsqueeze(const Tensor& x, int64_t axis);
/// Removes an axis of size 1 (x is unchanged for another size). Without an axis: all axes of size 1.
Tensor squeeze(const Tensor& x, int64_t axis);
Tensor squeeze(const Tensor& x);

}  // namespace norma

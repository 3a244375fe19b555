#pragma once

#include "core/tensor.h"

namespace norma {

/// Pads x: adds `before[i]` elements of `value` in front of axis i and `after[i]` after it (negative crops). Any
/// dtype. Keeps the memory format. Differentiable.
Tensor pad(const Tensor& x, const Sizes& before, const Sizes& after, double value = 0);

/// The elements that pad() adds: 0; those after the border, which is not repeated ([1 2 3] becomes [3 2 1 2 3 2 1]);
/// the outermost one; the other end.
enum class PadMode { constant, reflect, replicate, circular };

/// Pads x with elements of x, as PyTorch's F.pad. Axes are padded one after the other, so that corners are filled, too.
/// Negative numbers crop. Any axes, any dtype. Keeps the memory format. Differentiable. Throws Error if there are fewer
/// elements to reflect or to take from the other end than asked for.
Tensor pad(const Tensor& x, const Sizes& before, const Sizes& after, PadMode mode);

}  // namespace norma

#pragma once

#include "core/tensor.h"
#include "ops/conv/conv.h"

namespace norma {

struct Pool2dOptions {
  Pair kernel = 2;
  Pair stride = 0;   ///< 0: as the kernel
  Pair padding = 0;  ///< at most half the kernel
  bool ceil_mode = false;
  bool count_include_pad = true;  ///< avg_pool2d: padding counts in the divisor, as in PyTorch
  Pair dilation = 1;              ///< max_pool2d: from one position of a window to the next
  int64_t divisor_override = 0;   ///< avg_pool2d: the divisor of every sum; 0: the number of positions
};

// x is (N, C, H, W); the result keeps its memory format. Floating dtypes; 16-bit ones are summed in float32 and rounded
// once. Differentiable, also twice.

/// Max pooling. The first of equal maxima gets the gradient; NaN counts as largest.
Tensor max_pool2d(const Tensor& x, const Pool2dOptions& options);
Tensor avg_pool2d(const Tensor& x, const Pool2dOptions& options);
/// Adaptive average pooling over windows [floor(i H / h), ceil((i + 1) H / h)): result (N, C, h, w).
Tensor adaptive_avg_pool2d(const Tensor& x, const Pair& output);

}  // namespace norma

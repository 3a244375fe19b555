#pragma once

#include "core/by_device.h"
#include "core/dtype.h"
#include "core/sizes.h"

#include <cstdint>

namespace norma::kernels {

/// A reduction as plain numbers: one entry per axis of the input. Strides are in elements; those of the output are 0
/// along reduced axes. Axes of size 1 may stand anywhere; no size is 0 unless said otherwise.
struct ReduceShape {
  Sizes sizes;
  Strides x_strides;
  Strides y_strides;
};

/// The functions of a reduction, with the dtypes that they have beside the floating ones.
enum class Fold : uint8_t {
  sum,                  ///< and int64, where the scale must be 1
  sum_in_double,        ///< sum, where y is float64; float32 and float64 alone
  squared_differences,  ///< sum of (x - mean)², mean laid out as y; float32 and float64 alone
  product,              ///< and int64; has no scale
  max,                  ///< NaN if there is one; and int64, int32; has no scale
};

struct ReduceKernels {
  /// y = scale · f of x. mean: null but for squared differences.
  void (*fold)(Fold f, const ReduceShape& shape, DType dtype, const void* x, const double* mean, void* y, double scale);
  /// y[i] (dense, int64) = the index of the largest element along an axis of `length` and `stride`, the last of equal
  /// ones if `last`. The axis starts at element offset i of the loop over `sizes` with `x_strides` in row-major order.
  /// Floating dtypes, int64, int32.
  void (*argmax)(const Sizes& sizes, const Strides& x_strides, int64_t length, int64_t stride, bool last, DType dtype,
                 const void* x, int64_t* y);
};

extern const ReduceKernels reduce_cpu, reduce_cuda, reduce_emulated;
extern const ByDevice<ReduceKernels> reduce_kernels;

}  // namespace norma::kernels

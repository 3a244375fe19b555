#pragma once

#include "core/by_device.h"
#include "core/dtype.h"
#include "core/sizes.h"

namespace norma::kernels {

/// A reduction as plain numbers: one entry per axis of the input. Strides are in elements; those of the output are 0
/// along reduced axes. Axes of size 1 may stand anywhere; no size is 0 unless said otherwise.
struct ReduceShape {
  Sizes sizes;
  Strides x_strides;
  Strides y_strides;
};

struct ReduceKernels {
  /// y = scale · sum of x. Floating dtypes and int64 (where scale must be 1).
  void (*sum)(const ReduceShape& shape, DType dtype, const void* x, void* y, double scale);
  /// y = the mean of x over `count` elements. float32 and float64.
  void (*mean)(const ReduceShape& shape, DType dtype, const void* x, double* y, int64_t count);
  /// y = scale · sum of (x - mean)², mean laid out as y. float32 and float64.
  void (*squared_differences)(const ReduceShape& shape, DType dtype, const void* x, const double* mean, void* y,
                              double scale);
  /// y = the product of x. Floating dtypes and int64.
  void (*product)(const ReduceShape& shape, DType dtype, const void* x, void* y);
  /// y = the largest x, NaN if there is one. Floating dtypes, int64, int32.
  void (*max)(const ReduceShape& shape, DType dtype, const void* x, void* y);
  /// y[i] (dense, int64) = the index of the largest element along an axis of `length` and `stride`, the last of equal
  /// ones if `last`. The axis starts at element offset i of the loop over `sizes` with `x_strides` in row-major order.
  /// Floating dtypes, int64, int32.
  void (*argmax)(const Sizes& sizes, const Strides& x_strides, int64_t length, int64_t stride, bool last, DType dtype,
                 const void* x, int64_t* y);
};

extern const ReduceKernels reduce_cpu, reduce_cuda, reduce_emulated;
extern const ByDevice<ReduceKernels> reduce_kernels;

}  // namespace norma::kernels

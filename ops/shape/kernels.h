#pragma once

#include "core/by_device.h"
#include "core/dtype.h"
#include "core/sizes.h"

namespace norma::kernels {

/// The shape of rows of x and of y; x and y differ in their number along one axis. Strides are in elements.
struct IndexShape {
  Sizes sizes;  ///< of one row: the other axes
  Strides x_strides;
  Strides y_strides;
  int64_t x_step;  ///< from one row of x to the next
  int64_t y_step;
  int64_t count;  ///< rows of y, entries of index
};

/// All take an index that holds valid rows of x.
struct IndexKernels {
  /// y[i] = x[index[i]] for every row i; any dtype.
  void (*select)(const IndexShape& shape, DType dtype, const void* x, const int64_t* index, void* y);
  /// x[index[i]] += y[i], in the order of i; floating dtypes.
  void (*add)(const IndexShape& shape, DType dtype, void* x, const int64_t* index, const void* y);
};

extern const IndexKernels index_cpu, index_cuda, index_emulated;
extern const ByDevice<IndexKernels> index_kernels;

}  // namespace norma::kernels

#pragma once

#include "core/device.h"
#include "core/dtype.h"
#include "core/sizes.h"

namespace norma::kernels {

/// Rows of x and y that differ in number along one axis. Strides are in elements.
struct IndexShape {
  Sizes sizes;  ///< of one row: the other axes
  Strides x_strides;
  Strides y_strides;
  int64_t x_step;  ///< from one row of x to the next
  int64_t y_step;
  int64_t count;  ///< rows of y, entries of index
};

/// The indexing of one device. index holds valid rows of x.
struct IndexKernels {
  /// y[i] = x[index[i]] for every row i; any dtype.
  void (*select)(const IndexShape& shape, DType dtype, const void* x, const int64_t* index, void* y);
  /// x[index[i]] += y[i], in the order of i; floating dtypes.
  void (*add)(const IndexShape& shape, DType dtype, void* x, const int64_t* index, const void* y);
};

const IndexKernels& index_cpu();
const IndexKernels& index_cuda();

inline const IndexKernels& index_kernels(Device device) {
  return device.type == DeviceType::cuda ? index_cuda() : index_cpu();
}

}  // namespace norma::kernels

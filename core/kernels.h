#pragma once

#include "core/by_device.h"
#include "core/dtype.h"
#include "core/strided_loop.h"

#include <cstdint>
#include <span>

namespace norma::kernels {

/// Numbers `first`, `first` + 1, … of a generator's stream.
struct RandomStream {
  uint64_t seed;
  uint64_t first;
};

/// Elements that lie side by side in both arrays.
struct CopyItem {
  int64_t count = 0;
  void* to = nullptr;
  const void* from = nullptr;
};

/// The kernels of tensors, below the ops. Loops may have gaps and broadcast operands. A tensor to fill with random or
/// counted numbers is dense and in row-major order.
struct TensorKernels {
  /// dst = src, converted. Operand 0 is dst.
  void (*copy)(const StridedLoop<2>& loop, DType dst_dtype, void* dst, DType src_dtype, const void* src);
  /// out = a + b, the half types in float32. Operands: out, a, b.
  void (*add)(const StridedLoop<3>& loop, DType dtype, void* out, const void* a, const void* b);
  /// to = factor · from for each item, converted. `factor` points to a number on the device; null: to = from. A product
  /// is computed in compute_dtype(to_dtype). It needs the same dtype twice, or float32 and a half type. On a GPU all
  /// items take a launch or two.
  void (*copy_all)(DType to_dtype, DType from_dtype, const double* factor, std::span<const CopyItem> items);
  /// to = to + from for each item, as add().
  void (*add_all)(DType dtype, std::span<const CopyItem> items);
  void (*fill)(const StridedLoop<1>& loop, DType dtype, void* x, double value);
  /// The row-major position of the first NaN or Inf; -1 if there is none. `strides` may have any order.
  int64_t (*find_not_finite)(const Sizes& sizes, const Strides& strides, DType dtype, const void* x);
  /// x = 0, 1, …, count - 1
  void (*arange)(int64_t* x, int64_t count);
  /// x = low + (high - low) · u, u in [0, 1). A number of the stream makes four float32 or two float64.
  void (*uniform)(DType dtype, void* x, int64_t count, RandomStream stream, double low, double high);
  /// Normal numbers. A number of the stream makes two.
  void (*normal)(DType dtype, void* x, int64_t count, RandomStream stream, double mean, double std);
  /// Normal numbers, drawn again while outside [low, high]. A number of the stream makes one.
  void (*truncated_normal)(DType dtype, void* x, int64_t count, RandomStream stream, double mean, double std,
                           double low, double high);
  /// x = low + n, n in [0, range). A number of the stream makes two.
  void (*randint)(int64_t* x, int64_t count, RandomStream stream, int64_t low, uint64_t range);
};

extern const TensorKernels tensor_cpu, tensor_cuda, tensor_emulated;
extern const ByDevice<TensorKernels> tensor_kernels;

}  // namespace norma::kernels

#pragma once

#include "core/by_device.h"
#include "core/dtype.h"
#include "core/strided_loop.h"

#include <cstdint>

namespace norma::kernels {

/// Numbers `first`, `first` + 1, … of a generator's stream.
struct RandomStream {
  uint64_t seed;
  uint64_t first;
};

/// What tensors need before there are ops. Loops may have gaps and broadcast operands; what is filled with random or
/// counted numbers lies dense, in row-major order.
struct TensorKernels {
  /// dst = src, converted. Operand 0 is dst.
  void (*copy)(const StridedLoop<2>& loop, DType dst_dtype, void* dst, DType src_dtype, const void* src);
  /// out = a + b, the half types in float32. Operands: out, a, b.
  void (*add)(const StridedLoop<3>& loop, DType dtype, void* out, const void* a, const void* b);
  void (*fill)(const StridedLoop<1>& loop, DType dtype, void* x, double value);
  /// The row-major position of the first NaN or Inf; -1 where there is none. `strides` as given, any order.
  int64_t (*find_not_finite)(const Sizes& sizes, const Strides& strides, DType dtype, const void* x);
  /// 0, 1, …
  void (*arange)(int64_t* x, int64_t count);
  /// low + (high - low) · u, u in [0, 1). float32 (four numbers of each of the stream's) and float64 (two).
  void (*uniform)(DType dtype, void* x, int64_t count, RandomStream stream, double low, double high);
  /// Two numbers of each of the stream's.
  void (*normal)(DType dtype, void* x, int64_t count, RandomStream stream, double mean, double std);
  /// One number of each of the stream's, drawn again while it lies outside [low, high].
  void (*truncated_normal)(DType dtype, void* x, int64_t count, RandomStream stream, double mean, double std,
                           double low, double high);
  /// low + n, n in [0, range). Two numbers of each of the stream's.
  void (*randint)(int64_t* x, int64_t count, RandomStream stream, int64_t low, uint64_t range);
};

extern const TensorKernels tensor_cpu, tensor_cuda, tensor_emulated;
extern const ByDevice<TensorKernels> tensor_kernels;

}  // namespace norma::kernels

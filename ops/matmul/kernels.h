#pragma once

#include "core/by_device.h"
#include "core/dtype.h"
#include "core/storage.h"
#include "ops/epilogue.h"
#include "ops/implementations.h"

#include <compare>
#include <cstdint>
#include <string_view>

namespace norma::kernels {

/// `batch` products c = a b + bias of a (m, k) and b (k, n), in plain numbers. Strides are in elements. In a and b
/// either the rows or the columns are runs of memory: one of the two strides is 1, the other at least the length of a
/// run. c's columns are adjacent. At most one of a_batch and b_batch is 0 when batch > 1. m, n > 0; k may be 0.
struct MatmulCase {
  DType dtype = DType::float32;
  int64_t batch = 1, m = 0, n = 0, k = 0;
  int64_t a_batch = 0, a_row = 0, a_column = 0;  ///< a_batch and b_batch may be 0: the same matrix every time
  int64_t b_batch = 0, b_row = 0, b_column = 0;
  int64_t c_batch = 0, c_row = 0;
  bool wide = false;  ///< c is of compute_dtype(dtype), and not rounded to 16 bits

  [[nodiscard]] DType c_dtype() const { return wide ? compute_dtype(dtype) : dtype; }

  friend auto operator<=>(const MatmulCase&, const MatmulCase&) = default;
};

/// One product of matrices without gaps. `turned`: memory holds the transposed matrix.
inline MatmulCase dense_product(DType dtype, int64_t m, int64_t n, int64_t k, bool a_turned = false,
                                bool b_turned = false) {
  return {.dtype = dtype,
          .m = m,
          .n = n,
          .k = k,
          .a_row = a_turned ? 1 : k,
          .a_column = a_turned ? m : 1,
          .b_row = b_turned ? 1 : n,
          .b_column = b_turned ? k : 1,
          .c_row = n};
}

/// The multiplications and additions of all products.
inline double flops(const MatmulCase& product) {
  return 2 * static_cast<double>(product.batch * product.m) * static_cast<double>(product.n * product.k);
}

/// Bytes of a, b and c.
inline double fewest_bytes(const MatmulCase& product) {
  const int64_t elements = (product.a_batch == 0 ? 1 : product.batch) * product.m * product.k +
                           (product.b_batch == 0 ? 1 : product.batch) * product.k * product.n +
                           product.batch * product.m * product.n;
  return static_cast<double>(elements) * static_cast<double>(size_of(product.dtype));
}

struct MatmulImplementation {
  std::string_view name;
  bool (*supports)(const MatmulCase& product);
  /// bias: n values added to every row, or nullptr. c is overwritten. `keep`, unless nullptr, is the storage of b: an
  /// implementation that reorders b may keep the reordered one there.
  void (*multiply)(const MatmulCase& product, const void* a, const void* b, const void* bias, void* c, Storage* keep);
  /// multiply() with an epilogue. Returns false and leaves c unwritten if it has none for the case; nullptr: for none.
  bool (*multiply_act)(const MatmulCase& product, const void* a, const void* b, const void* bias, void* c,
                       const Epilogue& epilogue, Storage* keep) = nullptr;
  bool converts = false;  ///< it multiplies 16-bit operands as float32, into which it converts them
};

extern const MatmulImplementation* const matmul_onednn;  ///< nullptr in a build without oneDNN
extern const MatmulImplementation matmul_eigen;
/// bfloat16 and float16 through float32: converts the operands, calls the float32 implementation, and rounds.
extern const MatmulImplementation matmul_through_float;

struct MatmulKernels {
  /// The implementation that does a case.
  const MatmulImplementation& (*choose)(const MatmulCase& product);
  /// sums[j] = sum over i of x[i * stride + j]. Fixed order, carried in double.
  void (*column_sum)(DType dtype, int64_t rows, int64_t columns, int64_t stride, const void* x, void* sums);
  Implementations<MatmulImplementation>& (*implementations)();
};

extern const MatmulKernels matmul_cpu, matmul_cuda;
extern const ByDevice<MatmulKernels> matmul_kernels;

}  // namespace norma::kernels

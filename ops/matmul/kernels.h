#pragma once

#include "core/by_device.h"
#include "core/op_call.h"
#include "core/storage.h"
#include "ops/epilogue.h"
#include "ops/implementations.h"

#include <cstdint>
#include <string_view>

namespace norma::kernels {

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

/// nullptr in a build without oneDNN.
const MatmulImplementation* matmul_onednn();
const MatmulImplementation* matmul_eigen();
/// bfloat16 and float16 through float32: converts the operands, calls the float32 implementation, and rounds.
const MatmulImplementation* matmul_through_float();

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

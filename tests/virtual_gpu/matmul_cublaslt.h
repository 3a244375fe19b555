#pragma once

#include "virtual_gpu/descriptions_cublaslt.h"
#include "virtual_gpu/numbers.h"
#include "virtual_gpu/operand.h"

#include <cublasLt.h>

#include <cstdint>
#include <string>
#include <vector>

namespace virtual_gpu {

/// A product whose descriptions fit each other: op(A) (m, k), op(B) (k, n), C and D (m, n), `batch` times.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  MatmulDescription description;
  Operand a, b, c, d;  ///< (batch, rows, columns) behind op(); without addresses
  InputRounding rounding = InputRounding::kNone;

  /// "(8, 4) * (4, 6) of batch 2, float32"
  [[nodiscard]] std::string text() const;
  /// A number that two products share only where they are described alike.
  [[nodiscard]] uint64_t fingerprint() const;
  /// The vector behind CUBLASLT_MATMUL_DESC_BIAS_POINTER; without elements where the epilogue has none.
  [[nodiscard]] Operand bias() const;
  /// Whether the epilogue writes that vector.
  [[nodiscard]] bool writes_bias() const;
};

/// Throws Refusal: INVALID_VALUE for descriptions that contradict each other, NOT_SUPPORTED for types and epilogues
/// that cuBLASLt, or the virtual GPU, does not have.
Product understand(const MatmulDescription& description, const MatrixLayout& a, const MatrixLayout& b,
                   const MatrixLayout& c, const MatrixLayout& d);

/// One way to compute a product. What it says of itself is true: sums whose order is not fixed differ from call to
/// call.
struct Algorithm {
  uint64_t id = 0;
  const char* text = "";
  uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_NONE;
  uint64_t workspace_bytes = 0;
  uint32_t alignment[4] = {1, 1, 1, 1};  ///< that it needs of A, B, C and D
  uint32_t bias_alignment = 1;
  double noise = 0;  ///< in units of the output's epsilon, relative to the largest result
  bool varies = false;
};

/// The ways that a preference allows, best first; the ones that break rules come before those that keep them.
std::vector<Algorithm> algorithms_of(const Product& product, const MatmulPreference& preference);

/// What the program carries from the heuristic to the product, and back.
cublasLtMatmulAlgo_t packed(const Algorithm& algorithm, const Product& product);
/// Throws Refusal for what packed() did not make for this product.
Algorithm unpacked(const cublasLtMatmulAlgo_t& algo, const Product& product);

/// The memory of one call of cublasLtMatmul.
struct MatmulArguments {
  const void* alpha = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* beta = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
  void* workspace = nullptr;
  uint64_t workspace_bytes = 0;
  cudaStream_t stream = nullptr;
};

/// Checks the memory, and puts the work into the stream. Throws Refusal; what only shows when the work is done is a
/// Fault in the stream.
void multiply(const Product& product, const Algorithm& algorithm, const MatmulArguments& arguments);

}  // namespace virtual_gpu

#pragma once

#include "virtual_gpu/test_library.h"

#include <cublasLt.h>

#include <array>
#include <string>
#include <vector>

// A program that multiplies matrices with cuBLASLt, for tests of its stand-in.

namespace virtual_gpu::test {

inline cublasLtHandle_t blas() {
  static const cublasLtHandle_t made = [] {
    cublasLtHandle_t result = nullptr;
    REQUIRE(cublasLtCreate(&result) == CUBLAS_STATUS_SUCCESS);
    return result;
  }();
  return made;
}

inline cudaDataType cuda_type(NumberType type) {
  switch (type) {
    case NumberType::kFloat64: return CUDA_R_64F;
    case NumberType::kFloat32: return CUDA_R_32F;
    case NumberType::kFloat16: return CUDA_R_16F;
    default: return CUDA_R_16BF;
  }
}

/// "" for a success, else the text after cuBLASLt's own words for the status.
inline std::string text_of_status(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_SUCCESS) {
    return "";
  }
  const std::string text = cublasLtGetStatusString(status);
  const size_t colon = text.find(": ");
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

/// A matrix (rows, columns) as it lies in memory: columns of `leading` numbers.
struct MatrixCase {
  uint64_t rows = 0;
  uint64_t columns = 0;
  int64_t leading = 0;
  int64_t batch_stride = 0;
  bool transposed = false;
};

/// D = alpha op(A) op(B) + beta C of the tests.
struct ProductCase {
  NumberType type = NumberType::kFloat32;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  MatrixCase a = {.rows = 8, .columns = 12, .leading = 8, .batch_stride = 96};
  MatrixCase b = {.rows = 12, .columns = 16, .leading = 12, .batch_stride = 192};
  MatrixCase d = {.rows = 8, .columns = 16, .leading = 8, .batch_stride = 128};
  int32_t batch = 1;
  int32_t d_batch = 0;  ///< of C and D; 0: as batch
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  int64_t bias_stride = 0;
  cublasLtPointerMode_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_NONE;
  uint64_t workspace = 0;
  uint32_t alignment = 16;
};

/// The descriptions of a product.
class Described {
 public:
  explicit Described(const ProductCase& wanted) : of(wanted) {
    const bool is_double = of.type == NumberType::kFloat64;
    REQUIRE(cublasLtMatmulDescCreate(&operation, is_double ? CUBLAS_COMPUTE_64F : of.compute,
                                     is_double ? CUDA_R_64F : CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    set(CUBLASLT_MATMUL_DESC_TRANSA, of.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, of.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, of.epilogue);
    set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, of.bias);
    set(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, of.bias_stride);
    set(CUBLASLT_MATMUL_DESC_POINTER_MODE, of.pointer_mode);
    a = layout(of.a, of.batch);
    b = layout(of.b, of.batch);
    d = layout(of.d, of.d_batch == 0 ? of.batch : of.d_batch);
    REQUIRE(cublasLtMatmulPreferenceCreate(&preference) == CUBLAS_STATUS_SUCCESS);
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, of.schemes);
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, of.workspace);
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(attribute, of.alignment);
    }
  }
  ~Described() {
    cublasLtMatmulPreferenceDestroy(preference);
    for (const cublasLtMatrixLayout_t one : {a, b, d}) {
      cublasLtMatrixLayoutDestroy(one);
    }
    cublasLtMatmulDescDestroy(operation);
  }
  Described(const Described&) = delete;
  Described& operator=(const Described&) = delete;

  /// Asks for the best algorithm. The text is "" for a success.
  std::string choose() {
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(blas(), operation, a, b, d, d, preference, 1, &way, &found);
    REQUIRE((status != CUBLAS_STATUS_SUCCESS || found == 1));
    return text_of_status(status);
  }
  /// Multiplies with the chosen algorithm.
  std::string multiply(const void* alpha, const void* to_a, const void* to_b, const void* beta, void* to_d,
                       void* workspace = nullptr) {
    return text_of_status(cublasLtMatmul(blas(), operation, alpha, to_a, a, to_b, b, beta, to_d, d, to_d, d, &way.algo,
                                         workspace, way.workspaceSize, nullptr));
  }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    REQUIRE(cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS);
  }
  template <class T>
  void prefer(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    REQUIRE(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)) ==
            CUBLAS_STATUS_SUCCESS);
  }

  ProductCase of;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr;
  cublasLtMatrixLayout_t b = nullptr;
  cublasLtMatrixLayout_t d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulHeuristicResult_t way{};

 private:
  [[nodiscard]] cublasLtMatrixLayout_t layout(const MatrixCase& matrix, int32_t batch) const {
    cublasLtMatrixLayout_t made = nullptr;
    REQUIRE(cublasLtMatrixLayoutCreate(&made, cuda_type(of.type), matrix.rows, matrix.columns, matrix.leading) ==
            CUBLAS_STATUS_SUCCESS);
    cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof(batch));
    cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &matrix.batch_stride,
                                     sizeof(matrix.batch_stride));
    return made;
  }
};

}  // namespace virtual_gpu::test

#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

namespace virtual_gpu {

/// A matrix, as the program describes it.
struct MatrixLayout {
  uint32_t type = CUDA_R_32F;
  int32_t order = CUBLASLT_ORDER_COL;
  uint64_t rows = 0;
  uint64_t columns = 0;
  int64_t leading = 0;  ///< the stride of a column, in elements
  int32_t batch = 1;
  int64_t batch_stride = 0;
};

/// A product: D = alpha op(A) op(B) + beta C, and its epilogue.
struct MatmulDescription {
  int32_t compute = CUBLAS_COMPUTE_32F;
  int32_t scale = CUDA_R_32F;
  int32_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
  int32_t transpose_a = CUBLAS_OP_N;
  int32_t transpose_b = CUBLAS_OP_N;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  int64_t bias_batch_stride = 0;
};

/// What the program wants of an algorithm.
struct MatmulPreference {
  uint64_t workspace_bytes = 0;
  uint32_t reduction_schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignments[4] = {256, 256, 256, 256};  ///< of A, B, C and D
};

cublasLtMatrixLayout_t create(const MatrixLayout& value);
cublasLtMatmulDesc_t create(const MatmulDescription& value);
cublasLtMatmulPreference_t create(const MatmulPreference& value);

/// The description that a program holds. `argument` names it in errors. Throws Refusal for what is destroyed or never
/// was, as do the functions below.
MatrixLayout& description_of(cublasLtMatrixLayout_t held, const char* argument);
MatmulDescription& description_of(cublasLtMatmulDesc_t held, const char* argument);
MatmulPreference& description_of(cublasLtMatmulPreference_t held, const char* argument);

/// Destroys a description; null is none.
void destroy(cublasLtMatrixLayout_t held);
void destroy(cublasLtMatmulDesc_t held);
void destroy(cublasLtMatmulPreference_t held);

/// Sets an attribute. As cuBLASLt does, it checks the size of the value only: what the value means is checked when the
/// description is used.
void set(MatrixLayout& on, cublasLtMatrixLayoutAttribute_t attribute, const void* value, size_t bytes);
void set(MatmulDescription& on, cublasLtMatmulDescAttributes_t attribute, const void* value, size_t bytes);
void set(MatmulPreference& on, cublasLtMatmulPreferenceAttributes_t attribute, const void* value, size_t bytes);

}  // namespace virtual_gpu

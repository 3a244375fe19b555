#include "virtual_gpu/descriptions_cublaslt.h"

#include "virtual_gpu/refusal.h"
#include "virtual_gpu/registry.h"

#include <algorithm>
#include <cstring>

namespace virtual_gpu {

namespace {

/// Where the value of an attribute lies in its description.
struct Field {
  int attribute;
  const char* text;
  size_t offset;
  size_t bytes;
};

// The header's names are needed as text, which only the preprocessor makes.
#define FIELD(attribute, type, member) attribute, #attribute, offsetof(type, member), sizeof(type::member)

constexpr Field kLayoutFields[] = {
    {FIELD(CUBLASLT_MATRIX_LAYOUT_TYPE, MatrixLayout, type)},
    {FIELD(CUBLASLT_MATRIX_LAYOUT_ORDER, MatrixLayout, order)},
    {FIELD(CUBLASLT_MATRIX_LAYOUT_ROWS, MatrixLayout, rows)},
    {FIELD(CUBLASLT_MATRIX_LAYOUT_COLS, MatrixLayout, columns)},
    {FIELD(CUBLASLT_MATRIX_LAYOUT_LD, MatrixLayout, leading)},
    {FIELD(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, MatrixLayout, batch)},
    {FIELD(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, MatrixLayout, batch_stride)},
};

constexpr Field kMatmulFields[] = {
    {FIELD(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, MatmulDescription, compute)},
    {FIELD(CUBLASLT_MATMUL_DESC_SCALE_TYPE, MatmulDescription, scale)},
    {FIELD(CUBLASLT_MATMUL_DESC_POINTER_MODE, MatmulDescription, pointer_mode)},
    {FIELD(CUBLASLT_MATMUL_DESC_TRANSA, MatmulDescription, transpose_a)},
    {FIELD(CUBLASLT_MATMUL_DESC_TRANSB, MatmulDescription, transpose_b)},
    {FIELD(CUBLASLT_MATMUL_DESC_EPILOGUE, MatmulDescription, epilogue)},
    {FIELD(CUBLASLT_MATMUL_DESC_BIAS_POINTER, MatmulDescription, bias)},
    {FIELD(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, MatmulDescription, bias_batch_stride)},
};

constexpr Field kPreferenceFields[] = {
    {FIELD(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, MatmulPreference, workspace_bytes)},
    {FIELD(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, MatmulPreference, reduction_schemes)},
    {FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, MatmulPreference, alignments[0])},
    {FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, MatmulPreference, alignments[1])},
    {FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, MatmulPreference, alignments[2])},
    {FIELD(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, MatmulPreference, alignments[3])},
};

#undef FIELD

/// Never destroyed: objects of static lifetime may hold descriptions.
template <class T>
Registry<T>& registry() {
  static auto* const all = new Registry<T>;
  return *all;
}

template <class T>
T& find(const void* held, const char* argument) {
  T* const found = registry<T>().find(held);
  expect(found != nullptr, CUBLAS_STATUS_INVALID_VALUE, "{}: expected a description, got {}", argument,
         registry<T>().describe(held));
  return *found;
}

template <class T>
void erase(const void* held, const char* call) {
  if (held != nullptr) {
    find<T>(held, call);
    registry<T>().destroy(held);
  }
}

template <class T, class Fields>
void set_field(T& on, const Fields& fields, int attribute, const char* call, const void* value, size_t bytes) {
  const auto* const field =
      std::find_if(std::begin(fields), std::end(fields), [&](const Field& one) { return one.attribute == attribute; });
  expect(field != std::end(fields), CUBLAS_STATUS_INVALID_VALUE,
         "{}: attribute {}: expected one that the virtual GPU knows", call, attribute);
  expect(value != nullptr, CUBLAS_STATUS_INVALID_VALUE, "{}: {}: expected a value, got null", call, field->text);
  expect(bytes == field->bytes, CUBLAS_STATUS_INVALID_VALUE, "{}: {}: expected a value of {} bytes, got {}", call,
         field->text, field->bytes, bytes);
  std::memcpy(reinterpret_cast<std::byte*>(&on) + field->offset, value, bytes);
}

}  // namespace

cublasLtMatrixLayout_t create(const MatrixLayout& value) {
  return registry<MatrixLayout>().create<cublasLtMatrixLayout_t>(value);
}
cublasLtMatmulDesc_t create(const MatmulDescription& value) {
  return registry<MatmulDescription>().create<cublasLtMatmulDesc_t>(value);
}
cublasLtMatmulPreference_t create(const MatmulPreference& value) {
  return registry<MatmulPreference>().create<cublasLtMatmulPreference_t>(value);
}

MatrixLayout& description_of(cublasLtMatrixLayout_t held, const char* argument) {
  return find<MatrixLayout>(held, argument);
}
MatmulDescription& description_of(cublasLtMatmulDesc_t held, const char* argument) {
  return find<MatmulDescription>(held, argument);
}
MatmulPreference& description_of(cublasLtMatmulPreference_t held, const char* argument) {
  return find<MatmulPreference>(held, argument);
}

void destroy(cublasLtMatrixLayout_t held) {
  erase<MatrixLayout>(held, "cublasLtMatrixLayoutDestroy");
}
void destroy(cublasLtMatmulDesc_t held) {
  erase<MatmulDescription>(held, "cublasLtMatmulDescDestroy");
}
void destroy(cublasLtMatmulPreference_t held) {
  erase<MatmulPreference>(held, "cublasLtMatmulPreferenceDestroy");
}

void set(MatrixLayout& on, cublasLtMatrixLayoutAttribute_t attribute, const void* value, size_t bytes) {
  set_field(on, kLayoutFields, attribute, "cublasLtMatrixLayoutSetAttribute", value, bytes);
}
void set(MatmulDescription& on, cublasLtMatmulDescAttributes_t attribute, const void* value, size_t bytes) {
  set_field(on, kMatmulFields, attribute, "cublasLtMatmulDescSetAttribute", value, bytes);
}
void set(MatmulPreference& on, cublasLtMatmulPreferenceAttributes_t attribute, const void* value, size_t bytes) {
  set_field(on, kPreferenceFields, attribute, "cublasLtMatmulPreferenceSetAttribute", value, bytes);
}

}  // namespace virtual_gpu

#include "virtual_gpu/matmul_cublaslt.h"
#include "virtual_gpu/refusal.h"

#include <algorithm>

namespace virtual_gpu {

namespace {

constexpr cublasStatus_t kInvalid = CUBLAS_STATUS_INVALID_VALUE;
constexpr cublasStatus_t kUnsupported = CUBLAS_STATUS_NOT_SUPPORTED;

NumberType number_type(const char* argument, uint32_t type) {
  switch (type) {
    case CUDA_R_64F: return NumberType::kFloat64;
    case CUDA_R_32F: return NumberType::kFloat32;
    case CUDA_R_16F: return NumberType::kFloat16;
    case CUDA_R_16BF: return NumberType::kBfloat16;
    default:
      refuse(kUnsupported, "{}: type: expected CUDA_R_64F, CUDA_R_32F, CUDA_R_16F or CUDA_R_16BF, got {}", argument,
             type);
  }
}

/// A matrix behind op().
Operand operand_of(const char* argument, const MatrixLayout& layout, int32_t operation) {
  const NumberType type = number_type(argument, layout.type);
  expect(layout.order == CUBLASLT_ORDER_COL, kUnsupported, "{}: order: expected CUBLASLT_ORDER_COL, got {}", argument,
         layout.order);
  expect(layout.rows > 0 && layout.columns > 0, kInvalid, "{}: expected at least 1 row and 1 column, got {} and {}",
         argument, layout.rows, layout.columns);
  const auto rows = static_cast<int64_t>(layout.rows);
  const auto columns = static_cast<int64_t>(layout.columns);
  expect(layout.leading >= rows, kInvalid, "{}: leading dimension: expected at least its {} rows, got {}", argument,
         rows, layout.leading);
  expect(layout.batch > 0 && layout.batch_stride >= 0, kInvalid,
         "{}: batch: expected a count of at least 1 and a stride of at least 0, got {} and {}", argument, layout.batch,
         layout.batch_stride);
  expect(operation == CUBLAS_OP_N || operation == CUBLAS_OP_T, kInvalid,
         "{}: operation: expected CUBLAS_OP_N or CUBLAS_OP_T, got {}", argument, operation);
  Operand made{.name = argument, .address = 0, .type = type, .sizes = {}, .strides = {}};
  if (operation == CUBLAS_OP_N) {
    made.sizes = {layout.batch, rows, columns};
    made.strides = {layout.batch_stride, 1, layout.leading};
  } else {
    made.sizes = {layout.batch, columns, rows};
    made.strides = {layout.batch_stride, layout.leading, 1};
  }
  return made;
}

InputRounding rounding_of(int32_t compute, NumberType type) {
  const bool is_double = type == NumberType::kFloat64;
  switch (compute) {
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_32F:
      expect(is_double == (compute == CUBLAS_COMPUTE_64F), kUnsupported, "compute type: expected {} for {}, got {}",
             is_double ? "CUBLAS_COMPUTE_64F" : "CUBLAS_COMPUTE_32F", name_of(type), compute);
      return InputRounding::kNone;
    case CUBLAS_COMPUTE_32F_FAST_TF32:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
      expect(type == NumberType::kFloat32, kUnsupported, "compute type: expected matrices of float32 for {}, got {}",
             compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? "TF32" : "BF16", name_of(type));
      return compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? InputRounding::kTf32 : InputRounding::kBfloat16;
    default: refuse(kUnsupported, "compute type: cublasComputeType_t {} is not one of the virtual GPU", compute);
  }
}

void check_types(const Product& product) {
  const NumberType type = product.a.type;
  expect(product.b.type == type, kUnsupported, "B: expected A's type {}, got {}", name_of(type),
         name_of(product.b.type));
  expect(product.c.type == product.d.type, kUnsupported, "C: expected D's type {}, got {}", name_of(product.d.type),
         name_of(product.c.type));
  const bool widened = bytes_of(type) == 2 && product.d.type == NumberType::kFloat32;
  expect(product.d.type == type || widened, kUnsupported, "D: expected A's type {}, got {}", name_of(type),
         name_of(product.d.type));
  const int32_t scale = type == NumberType::kFloat64 ? CUDA_R_64F : CUDA_R_32F;
  expect(product.description.scale == scale, kUnsupported, "scale type: expected cudaDataType {} for {}, got {}", scale,
         name_of(type), product.description.scale);
  const int32_t mode = product.description.pointer_mode;
  expect(mode == CUBLASLT_POINTER_MODE_HOST || mode == CUBLASLT_POINTER_MODE_DEVICE, kUnsupported,
         "pointer mode: expected CUBLASLT_POINTER_MODE_HOST or CUBLASLT_POINTER_MODE_DEVICE, got {}", mode);
}

void check_shapes(const Product& product) {
  const auto check = [](const Operand& matrix, int64_t rows, int64_t columns) {
    expect(matrix.sizes[1] == rows && matrix.sizes[2] == columns, kInvalid,
           "{}: expected {} rows and {} columns, got {} and {}", matrix.name, rows, columns, matrix.sizes[1],
           matrix.sizes[2]);
  };
  check(product.b, product.k, product.n);
  check(product.c, product.m, product.n);
  check(product.d, product.m, product.n);
  for (const Operand* const matrix : {&product.b, &product.c, &product.d}) {
    expect(matrix->sizes[0] == product.batch, kInvalid, "{}: batch count: expected A's {}, got {}", matrix->name,
           product.batch, matrix->sizes[0]);
  }
  expect(!product.d.overlaps_itself(), kInvalid, "D: batch stride: expected separate matrices of {} elements, got {}",
         product.d.sizes[1] * product.d.sizes[2], product.d.strides[0]);
}

void check_epilogue(const Product& product) {
  const uint32_t epilogue = product.description.epilogue;
  if (epilogue == CUBLASLT_EPILOGUE_DEFAULT) {
    return;
  }
  expect(epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_BGRADA ||
             epilogue == CUBLASLT_EPILOGUE_BGRADB,
         kUnsupported, "epilogue: expected the default one, BIAS, BGRADA or BGRADB, got {}", epilogue);
  expect(product.description.bias != nullptr, kInvalid,
         "epilogue: expected CUBLASLT_MATMUL_DESC_BIAS_POINTER, got null");
  expect(product.a.type != NumberType::kFloat64, kUnsupported, "epilogue: expected none for float64");
  expect(product.m > 1 && product.k > 1, kUnsupported, "epilogue: expected none for vectors, got {}", product.text());
  expect(!product.bias().overlaps_itself() || !product.writes_bias(), kInvalid,
         "epilogue: CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE: expected separate vectors for a batch of {}, got {}",
         product.batch, product.description.bias_batch_stride);
}

}  // namespace

std::string Product::text() const {
  return fmt::format("({}, {}) * ({}, {}){}, {}", m, k, k, n, batch > 1 ? fmt::format(" of batch {}", batch) : "",
                     name_of(a.type));
}

uint64_t Product::fingerprint() const {
  std::vector<int64_t> all = {description.compute, description.scale, description.pointer_mode, description.epilogue,
                              description.bias_batch_stride};
  for (const Operand* const matrix : {&a, &b, &c, &d}) {
    all.push_back(static_cast<int64_t>(matrix->type));
    all.insert(all.end(), matrix->sizes.begin(), matrix->sizes.end());
    all.insert(all.end(), matrix->strides.begin(), matrix->strides.end());
  }
  uint64_t hash = 0xCBF29CE484222325;  // FNV-1a, by words
  for (const int64_t one : all) {
    hash = (hash ^ static_cast<uint64_t>(one)) * 0x100000001B3;
  }
  return hash;
}

bool Product::writes_bias() const {
  return description.epilogue == CUBLASLT_EPILOGUE_BGRADA || description.epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

Operand Product::bias() const {
  if (description.epilogue == CUBLASLT_EPILOGUE_DEFAULT) {
    return {.name = "bias", .address = 0, .type = d.type, .sizes = {0}, .strides = {1}};
  }
  return {.name = "bias",
          .address = address_of(description.bias),
          .type = d.type,
          .sizes = {batch, description.epilogue == CUBLASLT_EPILOGUE_BGRADB ? n : m},
          .strides = {description.bias_batch_stride, 1}};
}

Product understand(const MatmulDescription& description, const MatrixLayout& a, const MatrixLayout& b,
                   const MatrixLayout& c, const MatrixLayout& d) {
  Product product;
  product.description = description;
  product.a = operand_of("A", a, description.transpose_a);
  product.b = operand_of("B", b, description.transpose_b);
  product.c = operand_of("C", c, CUBLAS_OP_N);
  product.d = operand_of("D", d, CUBLAS_OP_N);
  product.batch = product.a.sizes[0];
  product.m = product.a.sizes[1];
  product.k = product.a.sizes[2];
  product.n = product.d.sizes[2];
  check_shapes(product);
  check_types(product);
  product.rounding = rounding_of(description.compute, product.a.type);
  check_epilogue(product);
  return product;
}

}  // namespace virtual_gpu

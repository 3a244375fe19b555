#include "base/error.h"
#include "base/not_copied.h"
#include "core/cuda/retry.h"
#include "core/cuda/runtime.h"
#include "core/cuda/workspace.h"
#include "core/kernels.h"
#include "core/tf32.h"
#include "ops/matmul/kernels.h"
#include "ops/reduce/kernels.h"

#include <cublasLt.h>

#include <algorithm>
#include <compare>
#include <cstddef>
#include <map>
#include <mutex>

// Matrix products on CUDA through cuBLASLt. It is column-major: our row-major c = a b is its c' = b' a'.

namespace norma::kernels {

namespace {

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    fail("cuda", "{}: {}", call, cublasLtGetStatusString(status));
  }
}

cublasLtHandle_t handle() {
  static auto* const handles = new cuda::PerDevice<const cublasLtHandle_t>;
  return handles->get([] {
    cublasLtHandle_t result = nullptr;
    check(cublasLtCreate(&result), "cublasLtCreate");
    return new cublasLtHandle_t(result);
  });
}

/// The owner of one of cuBLASLt's descriptions.
template <class T, cublasStatus_t (*destroy)(T)>
class Owner : NotCopied {
 public:
  Owner() = default;
  ~Owner() { destroy(value_); }

  [[nodiscard]] T get() const { return value_; }
  [[nodiscard]] T* address() { return &value_; }

 private:
  T value_ = nullptr;
};
using Operation = Owner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>;
using Preference = Owner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>;

cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::float64: return CUDA_R_64F;
    case DType::float16: return CUDA_R_16F;
    case DType::bfloat16: return CUDA_R_16BF;
    default: return CUDA_R_32F;
  }
}

/// 16-bit numbers are added up in float32. float32 keeps its digits unless TF32 is allowed.
cublasComputeType_t compute_type(DType dtype, bool tf32) {
  switch (dtype) {
    case DType::float64: return CUBLAS_COMPUTE_64F;
    case DType::float32: return tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    default: return CUBLAS_COMPUTE_32F;
  }
}

/// A matrix for cuBLASLt: columns of memory, or the transpose of such a matrix.
class Matrix {
 public:
  /// Our matrix has rows · columns numbers with these strides, one of which is 1.
  Matrix(DType dtype, int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride, int64_t batch,
         int64_t batch_stride)
      : transposed_(!(column_stride == 1 && row_stride >= columns)) {
    const uint64_t along = static_cast<uint64_t>(transposed_ ? rows : columns);
    const uint64_t across = static_cast<uint64_t>(transposed_ ? columns : rows);
    check(cublasLtMatrixLayoutCreate(layout_.address(), data_type(dtype), along, across,
                                     transposed_ ? column_stride : row_stride),
          "cublasLtMatrixLayoutCreate");
    const auto count = static_cast<int32_t>(batch);
    set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, count);
    set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, batch_stride);
  }

  [[nodiscard]] cublasLtMatrixLayout_t layout() const { return layout_.get(); }
  [[nodiscard]] cublasOperation_t operation() const { return transposed_ ? CUBLAS_OP_T : CUBLAS_OP_N; }

 private:
  template <class T>
  void set(cublasLtMatrixLayoutAttribute_t attribute, const T& value) {
    check(cublasLtMatrixLayoutSetAttribute(layout_.get(), attribute, &value, sizeof(value)),
          "cublasLtMatrixLayoutSetAttribute");
  }

  bool transposed_;
  Owner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> layout_;
};

/// One product with its descriptions.
class Product {
 public:
  /// `bias` goes into the epilogue; null for none.
  Product(const MatmulCase& c, const void* bias, bool tf32)
      : a_(c.dtype, c.m, c.k, c.a_row, c.a_column, c.batch, c.a_batch),
        b_(c.dtype, c.k, c.n, c.b_row, c.b_column, c.batch, c.b_batch),
        c_(c.c_dtype(), c.m, c.n, c.c_row, 1, c.batch, c.c_batch) {
    const cudaDataType_t scale = c.dtype == DType::float64 ? CUDA_R_64F : CUDA_R_32F;
    check(cublasLtMatmulDescCreate(operation_.address(), compute_type(c.dtype, tf32), scale),
          "cublasLtMatmulDescCreate");
    set(CUBLASLT_MATMUL_DESC_TRANSA, b_.operation());
    set(CUBLASLT_MATMUL_DESC_TRANSB, a_.operation());
    if (bias != nullptr) {
      const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    }
  }

  /// The first of cuBLASLt's heuristics whose sums have a fixed order.
  [[nodiscard]] cublasLtMatmulHeuristicResult_t best(uint32_t alignment, uint64_t workspace_bytes) const {
    Preference preference;
    check(cublasLtMatmulPreferenceCreate(preference.address()), "cublasLtMatmulPreferenceCreate");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      check(cublasLtMatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
            "cublasLtMatmulPreferenceSetAttribute");
    };
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, workspace_bytes);
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(attribute, alignment);
    }
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle(), operation_.get(), b_.layout(), a_.layout(), c_.layout(), c_.layout(),
                                       preference.get(), 1, &result, &found);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED) {
      check(status, "cublasLtMatmulAlgoGetHeuristic");
    }
    norma::check(status == CUBLAS_STATUS_SUCCESS && found > 0 && result.state == CUBLAS_STATUS_SUCCESS, "matmul",
                 "cuBLASLt has no deterministic way to compute this");
    return result;
  }

  /// c = a b + beta · c
  void run(const void* a, const void* b, double beta, void* c, const cublasLtMatmulHeuristicResult_t& way,
           DType dtype) const {
    const cuda::Workspace workspace(static_cast<int64_t>(way.workspaceSize), cuda::current_device());
    const double wide[] = {1.0, beta};
    const float narrow[] = {1.0F, static_cast<float>(beta)};
    const bool is_wide = dtype == DType::float64;
    const void* const one = is_wide ? static_cast<const void*>(&wide[0]) : &narrow[0];
    const void* const other = is_wide ? static_cast<const void*>(&wide[1]) : &narrow[1];
    const auto start = [&] {
      return cublasLtMatmul(handle(), operation_.get(), one, b, b_.layout(), a, a_.layout(), other, c, c_.layout(), c,
                            c_.layout(), &way.algo, workspace.data(), way.workspaceSize, cuda::current_stream());
    };
    // cuBLASLt does not say for certain that memory was what it lacked.
    const cublasStatus_t status = cuda::start_with_memory(
        start, [](cublasStatus_t result) { return result != CUBLAS_STATUS_SUCCESS; }, cuda::release_cached_memory);
    check(status, "cublasLtMatmul");
  }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublasLtMatmulDescSetAttribute(operation_.get(), attribute, &value, sizeof(value)),
          "cublasLtMatmulDescSetAttribute");
  }

  Matrix a_;
  Matrix b_;
  Matrix c_;
  Operation operation_;
};

/// The key of the choice of a way.
struct WayCase {
  int device = 0;
  MatmulCase product;
  bool bias = false;
  int64_t alignment = 16;
  bool tf32 = false;

  friend auto operator<=>(const WayCase&, const WayCase&) = default;
};

/// The most workspace that a product may want: NVIDIA's recommendation for its larger GPUs.
constexpr uint64_t kWorkspaceBytes = uint64_t{32} << 20;

/// The way of a case. It is kept for the next product of the same case.
cublasLtMatmulHeuristicResult_t way_of(const WayCase& wanted, const Product& product) {
  static std::mutex mutex;
  static std::map<WayCase, cublasLtMatmulHeuristicResult_t> ways;
  const std::lock_guard lock(mutex);
  const auto found = ways.find(wanted);
  if (found != ways.end()) {
    return found->second;
  }
  return ways.emplace(wanted, product.best(static_cast<uint32_t>(wanted.alignment), kWorkspaceBytes)).first->second;
}

/// c = bias in every row, or 0 without a bias.
void fill_rows(const MatmulCase& product, const void* bias, void* c) {
  const Sizes sizes = {product.batch, product.m, product.n};
  const Strides strides = {product.c_batch, product.c_row, 1};
  const auto& kernels = tensor_kernels.table("matmul", cuda::current_device());
  if (bias == nullptr) {
    kernels.fill(make_strided_loop<1>(sizes, {strides}), product.c_dtype(), c, 0);
  } else {
    kernels.copy(make_strided_loop<2>(sizes, {strides, Strides{0, 0, 1}}), product.c_dtype(), c, product.dtype, bias);
  }
}

bool supports(const MatmulCase& /* product */) {
  return true;
}

/// A product whose batch is small enough for cuBLASLt.
void multiply_piece(const MatmulCase& product, const void* a, const void* b, const void* bias, void* c) {
  // cuBLASLt's epilogue has no bias for float64 and for vectors, and it has no products over 0 numbers.
  const bool narrow = product.dtype == DType::float64 || product.n == 1 || product.k == 1;
  const bool bias_first = product.k == 0 || (bias != nullptr && narrow);
  if (bias_first) {
    fill_rows(product, bias, c);
    if (product.k == 0) {
      return;
    }
  }
  const void* const epilogue_bias = bias_first ? nullptr : bias;
  const Product described(product, epilogue_bias, allow_tf32());
  const WayCase wanted{.device = cuda::current_device().index,
                       .product = product,
                       .bias = epilogue_bias != nullptr,
                       .alignment = cuda::alignment_of({a, b, c, epilogue_bias}),
                       .tf32 = allow_tf32()};
  described.run(a, b, bias_first ? 1.0 : 0.0, c, way_of(wanted, described), product.dtype);
}

void multiply(const MatmulCase& product, const void* a, const void* b, const void* bias, void* c, Storage* /* keep */) {
  constexpr int64_t kMostBatches = 65535;  // the limit of a grid in one direction
  const auto bytes = static_cast<int64_t>(size_of(product.dtype));
  const auto c_bytes = static_cast<int64_t>(size_of(product.c_dtype()));
  for (int64_t first = 0; first < product.batch; first += kMostBatches) {
    MatmulCase piece = product;
    piece.batch = std::min(product.batch - first, kMostBatches);
    multiply_piece(piece, static_cast<const std::byte*>(a) + first * product.a_batch * bytes,
                   static_cast<const std::byte*>(b) + first * product.b_batch * bytes, bias,
                   static_cast<std::byte*>(c) + first * product.c_batch * c_bytes);
  }
}

void column_sum(DType dtype, int64_t rows, int64_t columns, int64_t stride, const void* x, void* sums) {
  const ReduceShape shape{.sizes = {rows, columns}, .x_strides = {stride, 1}, .y_strides = {0, 1}};
  reduce_kernels.table("matmul", cuda::current_device()).fold(Fold::sum, shape, dtype, x, nullptr, sums, 1);
}

constexpr MatmulImplementation kImplementation{.name = "cublaslt", .supports = supports, .multiply = multiply};

Implementations<MatmulImplementation>& implementations() {
  static Implementations<MatmulImplementation> list("matmul", "NORMA_MATMUL", {&kImplementation}, kImplementation);
  return list;
}

const MatmulImplementation& choose(const MatmulCase& /* product */) {
  return kImplementation;
}

}  // namespace

constinit const MatmulKernels matmul_cuda{
    .choose = choose, .column_sum = column_sum, .implementations = implementations};

}  // namespace norma::kernels

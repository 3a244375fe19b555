#include "virtual_gpu/test_matmul_cublaslt.h"

#include <algorithm>
#include <cmath>
#include <optional>

using namespace virtual_gpu;
using namespace virtual_gpu::test;

namespace {

using Values = std::vector<double>;

size_t elements(const MatrixCase& matrix, int32_t batch) {
  return static_cast<size_t>((batch - 1) * matrix.batch_stride) +
         (matrix.columns - 1) * static_cast<size_t>(matrix.leading) + matrix.rows;
}

/// Where op(matrix)[row, column] of a batch's part lies.
size_t place(const MatrixCase& matrix, int64_t batch, int64_t row, int64_t column) {
  if (matrix.transposed) {
    std::swap(row, column);
  }
  return static_cast<size_t>(batch * matrix.batch_stride + column * matrix.leading + row);
}

/// A product with its memory.
struct Multiplication {
  explicit Multiplication(ProductCase wanted, Values (*make)(size_t, uint64_t) = some_numbers)
      : of(wanted),
        a(make(elements(of.a, of.batch), 1)),
        b(make(elements(of.b, of.batch), 2)),
        d(make(elements(of.d, of.batch), 3)),
        bias(make(bias_size(), 4)),
        device_bias(of.type, bias) {
    if (of.epilogue != CUBLASLT_EPILOGUE_DEFAULT) {
      of.bias = device_bias.get();
    }
  }

  [[nodiscard]] int64_t k() const { return static_cast<int64_t>(of.a.transposed ? of.a.rows : of.a.columns); }
  [[nodiscard]] size_t bias_size() const {
    const uint64_t one = of.epilogue == CUBLASLT_EPILOGUE_BGRADB ? of.d.columns : of.d.rows;
    return one + static_cast<size_t>((of.batch - 1) * of.bias_stride);
  }
  [[nodiscard]] Values rounded_inputs(const Values& values, InputRounding rounding) const {
    Values result = values;
    round_inputs(rounding, result);
    return result;
  }

  /// By the definition, in double, rounded once.
  [[nodiscard]] Values expected(InputRounding rounding = InputRounding::kNone) const {
    const Values in_a = rounded_inputs(a, rounding), in_b = rounded_inputs(b, rounding);
    Values result = d;
    for (int64_t batch = 0; batch < of.batch; ++batch) {
      for (int64_t i = 0; i < static_cast<int64_t>(of.d.rows); ++i) {
        for (int64_t j = 0; j < static_cast<int64_t>(of.d.columns); ++j) {
          double sum = 0;
          for (int64_t inner = 0; inner < k(); ++inner) {
            sum += in_a[place(of.a, batch, i, inner)] * in_b[place(of.b, batch, inner, j)];
          }
          double& to = result[place(of.d, batch, i, j)];
          to = alpha * sum + (beta == 0 ? 0 : beta * to);
          if (of.epilogue == CUBLASLT_EPILOGUE_BIAS) {
            to += bias[static_cast<size_t>(batch * of.bias_stride + i)];
          }
          to = rounded(of.type, to);
        }
      }
    }
    return result;
  }
  /// The gradient of a bias, by the definition.
  [[nodiscard]] Values expected_bias() const {
    Values result = bias;
    const bool of_a = of.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    for (int64_t batch = 0; batch < of.batch; ++batch) {
      for (int64_t i = 0; i < static_cast<int64_t>(of_a ? of.d.rows : of.d.columns); ++i) {
        double sum = 0;
        for (int64_t inner = 0; inner < k(); ++inner) {
          sum += of_a ? a[place(of.a, batch, i, inner)] : b[place(of.b, batch, inner, i)];
        }
        result[static_cast<size_t>(batch * of.bias_stride + i)] = rounded(of.type, sum);
      }
    }
    return result;
  }

  Values computed() {
    Described described(of);
    REQUIRE(described.choose() == "");
    const DeviceNumbers device_a(of.type, a), device_b(of.type, b);
    // Without beta, D is never read.
    std::optional<DeviceNumbers> device_d;
    if (beta == 0 && of.d.leading == static_cast<int64_t>(of.d.rows)) {
      device_d.emplace(of.type, d.size());
    } else {
      device_d.emplace(of.type, d);
    }
    const NumberType scale = of.type == NumberType::kFloat64 ? NumberType::kFloat64 : NumberType::kFloat32;
    std::array<std::byte, 16> factors{};
    store(scale, factors.data(), alpha);
    store(scale, factors.data() + 8, beta);
    const DeviceNumbers device_factors(NumberType::kFloat64, {0, 0});
    REQUIRE(cudaMemcpy(device_factors.get(), factors.data(), 16, cudaMemcpyHostToDevice) == cudaSuccess);
    const std::byte* const first =
        of.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE ? device_factors.get() : factors.data();
    const DeviceNumbers workspace(NumberType::kFloat64, described.way.workspaceSize / 8 + 1);
    REQUIRE(described.multiply(first, device_a.get(), device_b.get(), first + 8, device_d->get(), workspace.get()) ==
            "");
    return device_d->values();
  }

  ProductCase of;
  double alpha = 1;
  double beta = 0;
  Values a, b, d, bias;
  DeviceNumbers device_bias;
};

double greatest_difference(const Values& a, const Values& b) {
  double greatest = 0;
  double scale = 0;
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    greatest = std::max(greatest, std::abs(a[i] - b[i]));
    scale = std::max(scale, std::abs(b[i]));
  }
  return greatest / scale;
}

constexpr NumberType kTypes[] = {NumberType::kFloat64, NumberType::kFloat32, NumberType::kFloat16,
                                 NumberType::kBfloat16};

/// (m, k) times (k, n) with gaps between columns and, for one matrix, a stride of 0 from one product to the next.
ProductCase product_of(NumberType type, int64_t m, int64_t n, int64_t k, bool transposed_a, bool transposed_b,
                       int32_t batch) {
  ProductCase of;
  of.type = type;
  of.batch = batch;
  of.alignment = static_cast<uint32_t>(bytes_of(type));
  const auto matrix = [](int64_t rows, int64_t columns, int64_t gap, bool transposed) {
    return MatrixCase{.rows = static_cast<uint64_t>(transposed ? columns : rows),
                      .columns = static_cast<uint64_t>(transposed ? rows : columns),
                      .leading = (transposed ? columns : rows) + gap,
                      .batch_stride = 0,
                      .transposed = transposed};
  };
  of.a = matrix(m, k, 1, transposed_a);
  of.b = matrix(k, n, 0, transposed_b);
  of.d = matrix(m, n, 3, false);
  of.a.batch_stride = of.a.leading * static_cast<int64_t>(of.a.columns) + 5;
  of.d.batch_stride = of.d.leading * static_cast<int64_t>(of.d.columns);
  return of;
}

}  // namespace

TEST_CASE("virtual cuBLASLt: products in each type, with transposes, gaps, batches, alpha and beta") {
  int compared = 0;
  for (const NumberType type : kTypes) {
    for (const bool transposed_a : {false, true}) {
      for (const bool transposed_b : {false, true}) {
        for (const int32_t batch : {1, 3}) {
          for (const double beta : {0.0, -0.5}) {
            Multiplication multiplication(product_of(type, 5, 7, 9, transposed_a, transposed_b, batch));
            multiplication.alpha = 2;
            multiplication.beta = beta;
            CAPTURE(std::string(name_of(type)));
            CAPTURE(transposed_a);
            CAPTURE(transposed_b);
            CAPTURE(batch);
            CHECK(multiplication.computed() == multiplication.expected());
            ++compared;
          }
        }
      }
    }
  }
  CHECK(compared == 4 * 2 * 2 * 2 * 2);
}

TEST_CASE("virtual cuBLASLt: alpha and beta of the device") {
  for (const NumberType type : {NumberType::kFloat64, NumberType::kBfloat16}) {
    Multiplication multiplication(product_of(type, 4, 6, 8, false, true, 2));
    multiplication.of.pointer_mode = CUBLASLT_POINTER_MODE_DEVICE;
    multiplication.alpha = -0.25;
    multiplication.beta = 3;
    CHECK(multiplication.computed() == multiplication.expected());
  }
}

TEST_CASE("virtual cuBLASLt: epilogues") {
  for (const NumberType type : {NumberType::kFloat32, NumberType::kFloat16, NumberType::kBfloat16}) {
    for (const auto epilogue : {CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB}) {
      for (const int64_t bias_stride : {0, 11}) {
        ProductCase of = product_of(type, 5, 7, 9, true, false, bias_stride == 0 ? 1 : 3);
        of.epilogue = epilogue;
        of.bias_stride = bias_stride;
        Multiplication multiplication(of);
        CAPTURE(static_cast<int>(epilogue));
        CHECK(multiplication.computed() == multiplication.expected());
        const bool is_gradient = epilogue != CUBLASLT_EPILOGUE_BIAS;
        CHECK(multiplication.device_bias.values() ==
              (is_gradient ? multiplication.expected_bias() : multiplication.bias));
      }
    }
  }
}

TEST_CASE("virtual cuBLASLt: TF32 and bfloat16 round the factors of float32") {
  ProductCase of;
  of.compute = CUBLAS_COMPUTE_32F_FAST_TF32;
  Multiplication tf32(of, long_numbers);
  CHECK(greatest_difference(tf32.computed(), tf32.expected(InputRounding::kTf32)) < 1.2e-7);
  CHECK(greatest_difference(tf32.computed(), tf32.expected()) > 1e-5);
  of.compute = CUBLAS_COMPUTE_32F_FAST_16BF;
  Multiplication bfloat16(of, long_numbers);
  CHECK(greatest_difference(bfloat16.computed(), bfloat16.expected(InputRounding::kBfloat16)) < 1.2e-7);
}

TEST_CASE("virtual cuBLASLt: the reduction schemes that are allowed decide the numbers") {
  ProductCase of;
  of.workspace = 1 << 20;
  of.schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  Multiplication split(of);
  CHECK(split.computed() == split.expected());
  of.schemes = CUBLASLT_REDUCTION_SCHEME_MASK;
  Multiplication any(of);
  const Values first = any.computed();
  CHECK(first != any.computed());
  CHECK(greatest_difference(first, any.expected()) < 1e-5);
  of.schemes = CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  of.type = NumberType::kBfloat16;
  Multiplication narrow(of);
  CHECK(narrow.computed() == narrow.computed());
  CHECK(greatest_difference(narrow.computed(), narrow.expected()) > 1e-2);
}

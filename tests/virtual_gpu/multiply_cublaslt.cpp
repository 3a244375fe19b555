#include "virtual_gpu/convolution.h"
#include "virtual_gpu/device.h"
#include "virtual_gpu/matmul_cublaslt.h"
#include "virtual_gpu/refusal.h"

#include <array>
#include <atomic>
#include <utility>

namespace virtual_gpu {

namespace {

constexpr cublasStatus_t kInvalid = CUBLAS_STATUS_INVALID_VALUE;
constexpr const char* kCall = "cublasLtMatmul";
/// The alignment that cuBLASLt's documentation asks of a workspace.
constexpr uint64_t kWorkspaceAlignment = 16;

/// alpha or beta: a number of the host, read when the product is called, or one of the device.
struct Factor {
  double value = 0;
  Operand memory;  ///< without elements for a number of the host

  [[nodiscard]] double read_now() const { return memory.elements() == 0 ? value : read(memory).front(); }
};

Factor factor_of(const char* name, const void* pointer, const Product& product) {
  expect(pointer != nullptr, kInvalid, "{}: {}: expected a number, got null", kCall, name);
  const NumberType type = product.description.scale == CUDA_R_64F ? NumberType::kFloat64 : NumberType::kFloat32;
  const bool on_device = product.description.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
  return {.value = on_device ? 0 : load(type, static_cast<const std::byte*>(pointer)),
          .memory = {.name = fmt::format("{}: {}", kCall, name),
                     .address = address_of(pointer),
                     .type = type,
                     .sizes = {on_device ? 1 : 0},
                     .strides = {1}}};
}

/// A product with the memory of one call.
struct Execution {
  Product product;
  Algorithm algorithm;
  Factor alpha;
  Factor beta;
  Operand bias;
  uint64_t workspace = 0;
  uint64_t call = 0;

  [[nodiscard]] std::vector<double> input(const Operand& matrix) const {
    std::vector<double> values = read(matrix);
    round_inputs(product.rounding, values);
    return values;
  }

  /// The gradient of a bias: the sums of a matrix over k, for each of the other axis.
  void write_bias_gradient(const std::vector<double>& a, const std::vector<double>& b) const {
    const bool of_a = product.description.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    const int64_t count = of_a ? product.m : product.n;
    std::vector<double> sums(static_cast<size_t>(product.batch * count), 0.0);
    for (int64_t i = 0; i < product.batch * count; ++i) {
      for (int64_t k = 0; k < product.k; ++k) {
        const int64_t from_a = i * product.k + k;
        const int64_t from_b = (i / count * product.k + k) * count + i % count;
        sums[static_cast<size_t>(i)] += of_a ? a[static_cast<size_t>(from_a)] : b[static_cast<size_t>(from_b)];
      }
    }
    write(bias, sums);
  }

  void run() const {
    poison(fmt::format("{}: workspace", kCall), workspace, algorithm.workspace_bytes);
    const std::vector<double> a = input(product.a);
    const std::vector<double> b = input(product.b);
    const int64_t results = product.m * product.n;
    std::vector<double> d(static_cast<size_t>(product.batch * results), 0.0);
    for (int64_t i = 0; i < product.batch; ++i) {
      multiply_add(product.m, product.k, product.n, a.data() + i * product.m * product.k,
                   b.data() + i * product.k * product.n, d.data() + i * results);
    }
    if (algorithm.noise != 0) {
      perturb(d, algorithm.noise, epsilon_of(product.d.type), algorithm.varies ? call : 0);
    }
    const double by = alpha.read_now();
    const double add = beta.read_now();
    const std::vector<double> c = add == 0 ? std::vector<double>() : read(product.c);
    const bool adds_bias = product.description.epilogue == CUBLASLT_EPILOGUE_BIAS;
    const std::vector<double> biases = adds_bias ? read(bias) : std::vector<double>();
    for (int64_t i = 0; i < product.batch * results; ++i) {
      const auto at = static_cast<size_t>(i);
      d[at] = by * d[at] + (add == 0 ? 0.0 : add * c[at]);
      if (adds_bias) {
        d[at] += biases[static_cast<size_t>(i / results * product.m + i % results / product.n)];
      }
    }
    if (product.writes_bias()) {
      write_bias_gradient(a, b);
    }
    write(product.d, d);
    poison(fmt::format("{}: workspace", kCall), workspace, algorithm.workspace_bytes);
  }
};

/// Gives an operand its memory, and checks the address.
void place(Operand& operand, const char* name, const void* pointer, uint32_t alignment) {
  expect(pointer != nullptr, kInvalid, "{}: {}: expected the device's memory, got null", kCall, name);
  operand.name = fmt::format("{}: {}", kCall, name);
  operand.address = address_of(pointer);
  expect(operand.address % alignment == 0, kInvalid,
         "{}: {}: expected an address aligned to {} bytes, which the algorithm was chosen for, got 0x{:x}", kCall, name,
         alignment, operand.address);
}

void check_workspace(Execution& execution, const MatmulArguments& arguments) {
  const uint64_t needed = execution.algorithm.workspace_bytes;
  expect(arguments.workspace_bytes >= needed, kInvalid, "{}: workspace: expected at least {} bytes, got {}", kCall,
         needed, arguments.workspace_bytes);
  if (needed == 0) {
    return;
  }
  expect(arguments.workspace != nullptr, kInvalid, "{}: workspace: expected {} bytes, got null", kCall, needed);
  execution.workspace = address_of(arguments.workspace);
  expect(execution.workspace % kWorkspaceAlignment == 0, kInvalid,
         "{}: workspace: expected an address aligned to {} bytes, got 0x{:x}", kCall, kWorkspaceAlignment,
         execution.workspace);
}

void check_aliasing(const Execution& execution) {
  const Product& product = execution.product;
  const std::array<std::pair<const char*, const Operand*>, 5> all = {
      {{"A", &product.a}, {"B", &product.b}, {"C", &product.c}, {"D", &product.d}, {"bias", &execution.bias}}};
  const auto check = [&](const char* name, const Operand& written) {
    for (const auto& [other, operand] : all) {
      // In place is allowed: C with the same layout.
      const bool is_c = operand == &product.c && &written == &product.d && operand->address == written.address &&
                        operand->strides == written.strides;
      expect(operand == &written || is_c || !overlap(written, *operand), kInvalid,
             "{}: {}: expected memory of its own, got bytes of {}", kCall, name, other);
    }
  };
  check("D", product.d);
  if (product.writes_bias()) {
    check("bias", execution.bias);
  }
  for (const auto& [name, operand] : all) {
    const bool apart = execution.workspace == 0 || operand->address + operand->span_bytes() <= execution.workspace ||
                       execution.workspace + execution.algorithm.workspace_bytes <= operand->address;
    expect(apart, kInvalid, "{}: workspace: expected memory of its own, got bytes of {}", kCall, name);
  }
}

}  // namespace

void multiply(const Product& product, const Algorithm& algorithm, const MatmulArguments& arguments) {
  static std::atomic<uint64_t> calls = 0;
  Execution execution{.product = product,
                      .algorithm = algorithm,
                      .alpha = factor_of("alpha", arguments.alpha, product),
                      .beta = factor_of("beta", arguments.beta, product),
                      .bias = product.bias(),
                      .workspace = 0,
                      .call = ++calls};
  place(execution.product.a, "A", arguments.a, algorithm.alignment[0]);
  place(execution.product.b, "B", arguments.b, algorithm.alignment[1]);
  place(execution.product.c, "C", arguments.c, algorithm.alignment[2]);
  place(execution.product.d, "D", arguments.d, algorithm.alignment[3]);
  if (execution.bias.elements() > 0) {
    place(execution.bias, "bias", product.description.bias, algorithm.bias_alignment);
  }
  check_workspace(execution, arguments);
  check_aliasing(execution);
  enqueue(arguments.stream, fmt::format("{}: {}, {}", kCall, product.text(), algorithm.text),
          [execution] { execution.run(); });
}

}  // namespace virtual_gpu

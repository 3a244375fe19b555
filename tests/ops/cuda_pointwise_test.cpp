#include "cuda_devices.h"
#include "launch_checks_guard.h"
#include "ops/pointwise/pointwise.h"
#include "support.h"

// CUDA's pointwise kernels beside the CPU's: every function, dtype and layout, with and without vectors.

using namespace norma;
using namespace norma::test;

namespace {

constexpr DType kFloating[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16};
constexpr DType kNumeric[] = {DType::float32,  DType::float64, DType::float16,
                              DType::bfloat16, DType::int64,   DType::int32};
constexpr DType kAllDTypes[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16,
                                DType::int64,   DType::int32,   DType::uint8,   DType::boolean};

/// Numbers with some zeros; small ones, so that all dtypes hold them.
Tensor values(const Sizes& sizes, uint64_t seed, DType dtype) {
  const Tensor numbers = random_tensor(sizes, seed);
  change_elements<double>(numbers, [&](double* elements) {
    for (int64_t i = 0; i < numbers.numel(); ++i) {
      elements[i] = i % 11 == 3 ? 0 : elements[i] * (is_floating(dtype) ? 2 : 30);
    }
  });
  return copy_of(numbers, MemoryFormat::preserve, dtype);
}

/// Steps of a dtype at 1.
double step_of(DType dtype) {
  return dtype == DType::float64    ? 0x1p-52
         : dtype == DType::float16  ? 0x1p-10
         : dtype == DType::bfloat16 ? 0x1p-7
                                    : 0x1p-23;
}

/// True iff both are NaN, or differ by `units` steps of the larger or of 0.01, which parts of a sum may be.
bool near(double a, double b, double units, double step) {
  if (std::isnan(a) || std::isnan(b)) {
    return std::isnan(a) && std::isnan(b);
  }
  return a == b || std::abs(a - b) <= units * step * std::max({std::abs(a), std::abs(b), 0.01});
}

using Op = std::function<Tensor(const Tensors& x)>;

/// op of the same inputs on the CPU and on CUDA devices. The results have the same strides; transcendental functions
/// may differ by a few `units`.
void check_op(const std::string& name, const Op& op, const Tensors& inputs, double units) {
  const DefaultDeviceGuard on_cpu(kCpu);
  const Tensor expected = op(inputs);
  const std::vector<double> wanted = expected.to_vector<double>();
  for (const Device device : cuda_devices()) {
    const DefaultDeviceGuard guard(device);
    Tensors there;
    for (const Tensor& x : inputs) {
      there.push_back(to_device(x, device));
    }
    const Tensor result = op(there);
    CHECK(result.device() == device);
    CHECK(result.strides() == expected.strides());
    const std::vector<double> got = result.to_vector<double>();
    REQUIRE(got.size() == wanted.size());
    const double step = step_of(inputs[0].dtype());
    bool same = true;
    for (size_t i = 0; i < got.size() && same; ++i) {
      same = near(got[i], wanted[i], units, step);
      CHECK_MESSAGE(same, name, " ", to_string(inputs[0].dtype()), " ", to_string(inputs[0].sizes()), ", element ", i,
                    ": ", got[i], " for ", wanted[i]);
    }
  }
}

struct Function {
  std::string name;
  double units;  ///< by which it may differ from the CPU's
  std::function<Tensor(const Tensor& x)> f;
  double gradient_units = -1;  ///< of its gradient; -1: units + 60, or none where the function has none
};

const Function kFunctions[] = {
    {"neg", 0, [](const Tensor& x) { return neg(x); }},
    {"abs", 0, [](const Tensor& x) { return abs(x); }},
    {"clamp", 0, [](const Tensor& x) { return clamp(x, -1, 2); }},
    {"relu", 0, [](const Tensor& x) { return relu(x); }},
    {"sqrt", 0, [](const Tensor& x) { return sqrt(x); }},
    {"rsqrt", 0, [](const Tensor& x) { return rsqrt(x); }},
    // CUDA's pow of doubles is right to 1.3 units, also where the result is the base itself.
    {"pow 2", 0, [](const Tensor& x) { return pow(x, 2); }, 4},
    {"pow 3", 0, [](const Tensor& x) { return pow(x, 3); }},
    {"pow -1", 0, [](const Tensor& x) { return pow(x, -1); }, 4},
    {"pow 1.7", 4, [](const Tensor& x) { return pow(x, 1.7); }},
    {"exp", 4, [](const Tensor& x) { return exp(x); }},
    {"log", 4, [](const Tensor& x) { return log(x); }},
    {"tanh", 4, [](const Tensor& x) { return tanh(x); }, 400},  // what tanh has rounded is all of 1 - tanh²
    {"sigmoid", 6, [](const Tensor& x) { return sigmoid(x); }},
    {"erf", 4, [](const Tensor& x) { return erf(x); }},
    {"silu", 6, [](const Tensor& x) { return silu(x); }},
    {"gelu", 50, [](const Tensor& x) { return gelu(x); }},  // in the tail erfc's argument counts squared
    {"gelu tanh", 30, [](const Tensor& x) { return gelu(x, GeluApproximation::tanh); }},
};

double gradient_units(const Function& function) {
  return function.gradient_units >= 0 ? function.gradient_units : function.units == 0 ? 0 : function.units + 60;
}

const Sizes kSizes[] = {{}, {1}, {3}, {33}, {1003}, {2, 3, 5, 7}, {3, 5, 4, 8}, {0, 3}};

}  // namespace

TEST_CASE("cuda pointwise: functions of one tensor and their gradients, every dtype and layout") {
  for (const DType dtype : kNumeric) {
    for (const Sizes& sizes : kSizes) {
      for (const Layout layout : kLayouts) {
        const DefaultDeviceGuard on_cpu(kCpu);
        const Tensor x = in_layout(values(sizes, 1, dtype), layout);
        const Tensor dy = in_layout(values(sizes, 2, dtype), layout);
        for (const Function& function : kFunctions) {
          if (!is_floating(dtype) && function.name != "neg" && function.name != "abs" && function.name != "clamp") {
            continue;
          }
          check_op(
              function.name, [&](const Tensors& in) { return function.f(in[0]); }, {x}, function.units);
          if (is_floating(dtype) && x.numel() > 0) {
            const auto gradient = [&](const Tensors& in) {
              const Tensor leaf = in[0].detach().set_requires_grad();
              return grad({function.f(leaf)}, {leaf}, {in[1]})[0];
            };
            check_op(function.name + ", gradient", gradient, {x, dy}, gradient_units(function));
          }
        }
      }
    }
  }
}

TEST_CASE("cuda pointwise: more elements than threads, ends that fill no vector, neighbours untouched") {
  const DefaultDeviceGuard on_cpu(kCpu);
  for (const DType dtype : kFloating) {
    for (const int64_t count : {31, 32, 33, 70001}) {
      for (const int64_t offset : {0, 1, 8}) {  // aligned to a vector, and not
        const Tensor memory = values({count + 24}, 1, dtype);
        const auto change = [&](const Tensors& in) {
          const Tensor all = copy_of(in[0]);
          Tensor part = alias(all, {count}, {1}, offset);
          relu_(part);
          add_(part, alias(in[0], {count}, {1}, 5));
          return all;
        };
        check_op("relu_ and add_", change, {memory}, 0);
      }
    }
    // Rows of whole vectors that do not begin where vectors do.
    const auto rows = [](const Tensors& in) { return neg(alias(in[0], {6, 16}, {17, 1}, 0)); };
    check_op("rows", rows, {values({200}, 1, dtype)}, 0);
  }
}

TEST_CASE("cuda pointwise: functions of two tensors, broadcast in every position, every dtype and layout") {
  const std::vector<std::pair<Sizes, Sizes>> kPairs = {{{2, 3, 5, 7}, {2, 3, 5, 7}},
                                                       {{2, 3, 4, 8}, {3, 1, 1}},
                                                       {{3, 1, 1}, {2, 3, 4, 8}},
                                                       {{2, 16, 3, 3}, {16, 1, 1}},
                                                       {{2, 3, 4, 8}, {8}},
                                                       {{2, 3, 4, 8}, {1}},
                                                       {{}, {33}},
                                                       {{5, 1}, {1, 9}},
                                                       {{64, 16}, {64, 1}},
                                                       {{1003}, {}}};
  struct BinaryOp {
    std::string name;
    double units;
    bool integers;
    std::function<Tensor(const Tensor& a, const Tensor& b)> f;
  };
  const BinaryOp kOps[] = {
      {"add", 0, true, [](const Tensor& a, const Tensor& b) { return add(a, b); }},
      {"sub", 0, true, [](const Tensor& a, const Tensor& b) { return sub(a, b); }},
      {"mul", 0, true, [](const Tensor& a, const Tensor& b) { return mul(a, b); }},
      {"div", 0, false, [](const Tensor& a, const Tensor& b) { return div(a, b); }},
      {"maximum", 0, true, [](const Tensor& a, const Tensor& b) { return maximum(a, b); }},
      {"pow", 4, false, [](const Tensor& a, const Tensor& b) { return pow(a, b); }},
  };
  for (const auto& [a_sizes, b_sizes] : kPairs) {
    for (const Layout layout : kLayouts) {
      for (const DType dtype : kAllDTypes) {
        const DefaultDeviceGuard on_cpu(kCpu);
        const Tensor a = in_layout(values(a_sizes, 1, dtype), layout);
        const Tensor b = in_layout(values(b_sizes, 2, dtype), layout);
        for (const BinaryOp& op : kOps) {
          if (is_floating(dtype) || (op.integers && dtype != DType::uint8 && dtype != DType::boolean)) {
            check_op(
                op.name, [&](const Tensors& in) { return op.f(in[0], in[1]); }, {a, b}, op.units);
          }
        }
        check_op(
            "equal", [](const Tensors& in) { return equal(in[0], in[1]); }, {a, b}, 0);
        check_op(
            "greater", [](const Tensors& in) { return greater(in[0], in[1]); }, {a, b}, 0);
        const Tensor condition = greater(values(b_sizes, 3, DType::float32), full({}, 0));
        check_op(
            "where", [](const Tensors& in) { return where(in[2], in[0], in[1]); }, {a, b, condition}, 0);
      }
    }
  }
}

TEST_CASE("cuda pointwise: NaN, infinities, the ends of integers") {
  const DefaultDeviceGuard on_cpu(kCpu);
  const std::vector<double> special = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1.5, -1.5, 1e-40, 1e30};
  for (const DType dtype : kFloating) {
    const Tensor x = copy_of(from_vector<double>(special, {9}), MemoryFormat::preserve, dtype);
    const Tensor column = copy_of(from_vector<double>(special, {9, 1}), MemoryFormat::preserve, dtype);
    for (const Function& function : kFunctions) {
      check_op(
          function.name, [&](const Tensors& in) { return function.f(in[0]); }, {x}, function.units);
    }
    check_op(
        "maximum", [](const Tensors& in) { return maximum(in[0], in[1]); }, {x, column}, 0);
    check_op(
        "equal", [](const Tensors& in) { return equal(in[0], in[1]); }, {x, column}, 0);
    check_op(
        "greater", [](const Tensors& in) { return greater(in[0], in[1]); }, {x, column}, 0);
    check_op(
        "open clamp", [](const Tensors& in) { return clamp(in[0], -INFINITY, 1); }, {x}, 0);
  }
  const Tensor ends = from_vector<int64_t>({INT64_MIN, INT64_MAX, -1, 0, 1}, {5});
  for (const Function& function : {kFunctions[0], kFunctions[1], kFunctions[2]}) {
    check_op(
        function.name, [&](const Tensors& in) { return function.f(in[0]); }, {ends}, 0);
  }
  check_op(
      "mul", [](const Tensors& in) { return mul(in[0], in[0]); }, {ends}, 0);
  check_op(
      "add", [](const Tensors& in) { return add(in[0], in[0]); }, {ends}, 0);
}

TEST_CASE("cuda pointwise: the same bits in any order of threads") {
  for (const uint64_t seed : {1, 2, 3}) {
    const LaunchChecksGuard checks({.order_seed = seed});
    const DefaultDeviceGuard on_cpu(kCpu);
    const Tensor x = values({3, 5, 4, 8}, 1, DType::float32);
    const Tensor bias = values({5, 1, 1}, 2, DType::float32);
    check_op(
        "add", [](const Tensors& in) { return add(in[0], in[1]); }, {x, bias}, 0);
    const auto in_place = [](const Tensors& in) {
      Tensor y = copy_of(in[0]);
      mul_(y, in[1]);
      return y;
    };
    check_op("in place", in_place, {x, bias}, 0);
  }
}

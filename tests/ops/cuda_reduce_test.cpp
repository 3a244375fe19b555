#include "ops/cuda_results.h"
#include "ops/reduce/reduce.h"

#include <cmath>

// CUDA's reductions beside the CPU's: every operation, dtype and layout, few and many outputs, short and long sums.

using namespace norma;
using namespace norma::test;

namespace {

constexpr DType kNumeric[] = {DType::float32,  DType::float64, DType::float16,
                              DType::bfloat16, DType::int64,   DType::int32};

struct Case {
  Sizes sizes;
  Axes axes;
};

/// With one thread for an output and with many, with parts that are merged, with and without vectors.
const Case kCases[] = {{{1}, {0}},
                       {{3, 5}, {1}},
                       {{3, 5}, {0}},
                       {{33, 31}, {1}},
                       {{33, 31}, {0}},
                       {{7, 1000}, {1}},
                       {{1000, 7}, {0}},
                       {{70001}, {0}},
                       {{70000, 2}, {0}},
                       {{3, 40000}, {1}},
                       {{2, 3, 5, 7}, {0, 2, 3}},
                       {{2, 3, 5, 7}, {1}},
                       {{2, 16, 8, 8}, {2, 3}},
                       {{2, 16, 8, 8}, {0, 3}},
                       {{4, 3, 2, 5}, {}},
                       {{2, 1, 5, 1}, {1, 3}},
                       {{300, 40}, {1}}};

Tensor values(const Sizes& sizes, DType dtype) {
  const Tensor numbers = random_tensor(sizes, 1);
  change_elements<double>(numbers, [&](double* elements) {
    for (int64_t i = 0; i < numbers.numel(); ++i) {
      elements[i] = is_floating(dtype) ? elements[i] : std::round(elements[i] * 4);  // some are equal
    }
  });
  return copy_of(numbers, MemoryFormat::preserve, dtype);
}

using Op = std::function<Tensor(const Tensor& x)>;

/// op(x) on CUDA is op(x) on the CPU; with a tolerance, as a share of the largest result, where sums are rounded.
void check_op(const std::string& name, const Tensor& x, const Op& op, double tolerance) {
  const DefaultDeviceGuard guard(kCpu);
  const Tensor expected = op(x);
  for (const Device device : cuda_devices()) {
    const Tensor result = op(to_device(x, device));
    CHECK(result.device() == device);
    CHECK(result.dtype() == expected.dtype());
    CHECK(result.strides() == expected.strides());
    const Tensor there = copy_of(to_device(result, kCpu), MemoryFormat::preserve, DType::float64);
    const double difference =
        relative_difference_or_nan(there, copy_of(expected, MemoryFormat::preserve, DType::float64));
    CHECK_MESSAGE(difference <= tolerance, name, " ", to_string(x.dtype()), " ", to_string(x.sizes()), ": ",
                  difference);
  }
}

/// Sums are float64 before they are rounded, in another order than the CPU's.
double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return 0x1p-23;
    case DType::float64: return 1e-12;
    case DType::float16: return 0x1p-10;
    case DType::bfloat16: return 0x1p-7;
    default: return 0;
  }
}

}  // namespace

TEST_CASE("cuda reductions: every operation, dtype and layout") {
  for (const DType dtype : kNumeric) {
    for (const Case& c : kCases) {
      const DefaultDeviceGuard guard(kCpu);
      const Tensor dense = values(c.sizes, dtype);
      for (const Layout layout : kLayouts) {
        const Tensor x = in_layout(dense, layout);
        const double tolerance = tolerance_of(dtype);
        for (const bool keepdim : {false, true}) {
          const ReduceOptions options{.keepdim = keepdim};
          check_op(
              "sum", x, [&](const Tensor& in) { return sum(in, c.axes, options); }, tolerance);
          check_op(
              "max", x, [&](const Tensor& in) { return max(in, c.axes, options); }, 0);
        }
        if (is_floating(dtype)) {
          check_op(
              "mean", x, [&](const Tensor& in) { return mean(in, c.axes); }, tolerance);
          check_op(
              "var", x, [&](const Tensor& in) { return var(in, c.axes, {.correction = 0}); }, 2 * tolerance);
        }
        if (c.axes.size() == 1 && dense.numel() < 2000) {
          check_op(
              "prod", x, [&](const Tensor& in) { return prod(in, c.axes); }, tolerance);
          for (const bool last : {false, true}) {
            const ArgmaxOptions options{.last = last};
            check_op(
                "argmax", x, [&](const Tensor& in) { return argmax(in, c.axes[0], options); }, 0);
          }
        }
      }
    }
  }
}

TEST_CASE("cuda reductions: rows of whole vectors that do not begin where vectors do") {
  const DefaultDeviceGuard guard(kCpu);
  for (const DType dtype : kNumeric) {
    const Tensor memory = values({200}, dtype);
    for (const Axes& axes : {Axes{1}, Axes{0, 1}}) {
      const auto sum_of_rows = [&](const Tensor& in) { return sum(alias(in, {6, 16}, {17, 1}, 0), axes); };
      check_op("sum", memory, sum_of_rows, tolerance_of(dtype));
    }
  }
}

TEST_CASE("cuda reductions: argmax of long axes, of equal elements the first or the last") {
  const DefaultDeviceGuard guard(kCpu);
  for (const Sizes& sizes : {Sizes{3, 9001}, Sizes{9001, 3}, Sizes{100003}}) {
    for (const DType dtype : {DType::float32, DType::int32}) {
      const Tensor x = copy_of(values(sizes, DType::int64), MemoryFormat::preserve, dtype);
      for (const bool last : {false, true}) {
        const int64_t axis = sizes[0] == 3 ? 1 : 0;
        check_op(
            "argmax", x, [&](const Tensor& in) { return argmax(in, axis, {.last = last}); }, 0);
      }
    }
  }
}

TEST_CASE("cuda reductions: NaN, infinities, the ends of integers") {
  const DefaultDeviceGuard guard(kCpu);
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    for (const int64_t at : {0, 7, 300, 70000}) {
      for (const double special : {double{NAN}, double{INFINITY}, -double{INFINITY}}) {
        const Tensor numbers = random_tensor({70001}, 1);
        set_element<double>(numbers, at, special);
        set_element<double>(numbers, 65000, special);
        const Tensor x = copy_of(numbers, MemoryFormat::preserve, dtype);
        check_op(
            "max", x, [](const Tensor& in) { return max(in, {0}); }, 0);
        check_op(
            "sum", x, [](const Tensor& in) { return sum(in, {0}); }, 0);
        for (const bool last : {false, true}) {
          check_op(
              "argmax", x, [&](const Tensor& in) { return argmax(in, 0, {.last = last}); }, 0);
        }
      }
    }
    const Tensor lowest = copy_of(full({40}, -INFINITY), MemoryFormat::preserve, dtype);
    check_op(
        "max", lowest, [](const Tensor& in) { return max(in, {0}); }, 0);
    check_op(
        "argmax", lowest, [](const Tensor& in) { return argmax(in, 0); }, 0);
  }
  const Tensor ends = from_vector<int64_t>({INT64_MIN, INT64_MIN, INT64_MAX, 3}, {2, 2});
  for (const int64_t axis : {0, 1}) {
    check_op(
        "sum", ends, [&](const Tensor& in) { return sum(in, {axis}); }, 0);
    check_op(
        "prod", ends, [&](const Tensor& in) { return prod(in, {axis}); }, 0);
    check_op(
        "max", ends, [&](const Tensor& in) { return max(in, {axis}); }, 0);
  }
}

TEST_CASE("cuda reductions: the same bits each time, in any order of threads") {
  const DefaultDeviceGuard guard(kCpu);
  for (const Case& c : kCases) {
    const Tensor x = values(c.sizes, DType::float64);
    check_any_order("reductions", [&](Device device) {
      const Tensor there = to_device(x, device);
      return Tensors{sum(there, c.axes), max(there, c.axes), var(there, c.axes, {.correction = 0}), argmax(there, 0)};
    });
  }
}

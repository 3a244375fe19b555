#include "ops/cuda_results.h"
#include "ops/loss/loss.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/view.h"

#include <limits>

// CUDA's kernels of softmax and cross entropy beside the CPU's in float64: rows of every length and stride.

using namespace norma;
using namespace norma::test;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

double tolerance_of(DType dtype) {
  return dtype == DType::float64 ? 1e-12 : 2e-6;
}

/// y and dx. Operands in float64 on the CPU.
Tensors softmax_results(const Tensor& x, const Tensor& dy, int64_t axis, bool logarithm, Layout layout, Device device,
                        DType dtype) {
  const auto there = [&](const Tensor& values) {
    return in_layout(to_device(copy_of(values, MemoryFormat::contiguous, dtype), device), layout);
  };
  const Tensor input = there(x).detach().set_requires_grad();
  const Tensor y = logarithm ? log_softmax(input, axis) : softmax(input, axis);
  return {y, grad({y}, {input}, {there(dy)})[0]};
}

void check_softmax(const Tensor& x, int64_t axis) {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const Tensor rounded_x = rounded(x, dtype);
    const Tensor dy = rounded(random_tensor(x.sizes(), 9), dtype);
    for (const bool logarithm : {false, true}) {
      const std::string name = logarithm ? "log_softmax " : "softmax ";
      const Tensors expected =
          on_cpu(softmax_results(rounded_x, dy, axis, logarithm, Layout::contiguous, kCpu, DType::float64));
      for (const Layout layout : kLayouts) {
        for (const Device device : cuda_devices()) {
          const Tensors got = on_cpu(softmax_results(rounded_x, dy, axis, logarithm, layout, device, dtype));
          for (size_t i = 0; i < 2; ++i) {
            const double difference = relative_difference_or_nan(got[i], expected[i]);
            CHECK_MESSAGE(difference <= tolerance_of(dtype), name, to_string(x.sizes()), " axis ", axis, " ",
                          to_string(dtype), " ", to_string(layout), ", result ", i, ": ", difference);
          }
        }
      }
    }
  }
}

struct CrossEntropyCase {
  std::string name;
  CrossEntropyOptions options = {};
  bool probabilities = false;
};

/// The loss, dx, and the gradient of the target where it has one.
Tensors cross_entropy_results(const CrossEntropyCase& c, const Tensor& x, const Tensor& target, Layout layout,
                              Device device, DType dtype) {
  const auto there = [&](const Tensor& values) {
    return in_layout(to_device(copy_of(values, MemoryFormat::contiguous, dtype), device), layout)
        .detach()
        .set_requires_grad();
  };
  Tensors inputs{there(x)};
  Tensor labels;
  if (c.probabilities) {
    inputs.push_back(there(target));
  } else {
    labels = to_device(target, device);
  }
  CrossEntropyOptions options = c.options;
  if (options.weight.defined()) {
    options.weight = to_device(options.weight, device);
  }
  const Tensor loss = cross_entropy(inputs[0], c.probabilities ? inputs[1] : labels, options);
  const Tensor dy = to_device(rounded(random_tensor(loss.sizes(), 7), DType::float32), device);
  Tensors all{loss};
  for (const Tensor& gradient : grad({loss}, inputs, {copy_of(dy, MemoryFormat::preserve, dtype)})) {
    all.push_back(gradient);
  }
  return all;
}

/// Classes of the rows, with every seventh row one that does not count.
Tensor some_labels(int64_t rows, int64_t classes) {
  std::vector<int64_t> labels;
  for (int64_t row = 0; row < rows; ++row) {
    labels.push_back(row % 7 == 3 ? -100 : row * 5 % classes);
  }
  return from_vector<int64_t>(labels, {rows});
}

std::vector<CrossEntropyCase> cross_entropy_cases(int64_t classes) {
  std::vector<double> weights;
  for (int64_t i = 0; i < classes; ++i) {
    weights.push_back(0.5 + static_cast<double>(i % 5));
  }
  const Tensor weight = from_vector<double>(weights, {classes});
  return {{"labels"},
          {"each row", {.reduction = Reduction::none}},
          {"smoothing", {.label_smoothing = 0.1}},
          {"weights", {.reduction = Reduction::sum, .weight = weight}},
          {"weights and smoothing", {.label_smoothing = 0.2, .weight = weight}},
          {"probabilities", {}, true},
          {"probabilities, weights and smoothing",
           {.label_smoothing = 0.3, .reduction = Reduction::none, .weight = weight},
           true}};
}

}  // namespace

TEST_CASE("cuda softmax: rows of every length, along every axis, in every layout") {
  const DefaultDeviceGuard guard(kCpu);
  for (const Sizes& sizes : {Sizes{3, 5}, Sizes{70, 1}, Sizes{1, 31}, Sizes{9, 32}, Sizes{5, 33}, Sizes{3, 129},
                             Sizes{2, 2048}, Sizes{3, 2049}, Sizes{1, 5003}, Sizes{3, 40, 5, 7}, Sizes{8200, 33}}) {
    for (int64_t axis = 0; axis < sizes.size(); ++axis) {
      check_softmax(random_tensor(sizes, 1), axis);
    }
  }
}

TEST_CASE("cuda softmax: large numbers, infinities and NaN") {
  const DefaultDeviceGuard guard(kCpu);
  for (const int64_t length : {7, 40, 2100}) {
    const Tensor x = random_tensor({6, length}, 2);
    change_elements<double>(x, [&](double* elements) {
      for (int64_t i = 0; i < length; ++i) {
        elements[i] *= 500;
        elements[length + i] = i == 3 ? -kInfinity : elements[length + i];
        elements[2 * length + i] = -kInfinity;
        elements[3 * length + i] = i == length - 1 ? NAN : elements[3 * length + i];
        elements[4 * length + i] = i == 5 ? kInfinity : elements[4 * length + i];
      }
    });
    check_softmax(x, 1);
  }
}

TEST_CASE("cuda cross entropy: targets of every kind, rows of every length") {
  const DefaultDeviceGuard guard(kCpu);
  for (const auto& [rows, classes] : {std::pair<int64_t, int64_t>{9, 10}, {1, 1}, {33, 31}, {4, 1000}, {3, 2500}}) {
    for (const CrossEntropyCase& c : cross_entropy_cases(classes)) {
      const Tensor target = c.probabilities ? softmax(rounded(random_tensor({rows, classes}, 3), DType::float32), 1)
                                            : some_labels(rows, classes);
      for (const DType dtype : {DType::float32, DType::float64}) {
        const Tensor x = rounded(random_tensor({rows, classes}, 4), dtype);
        const Tensors expected = on_cpu(cross_entropy_results(c, x, target, Layout::contiguous, kCpu, DType::float64));
        for (const Layout layout : {Layout::contiguous, Layout::strided}) {
          for (const Device device : cuda_devices()) {
            const Tensors got = on_cpu(cross_entropy_results(c, x, target, layout, device, dtype));
            REQUIRE(got.size() == expected.size());
            for (size_t i = 0; i < got.size(); ++i) {
              const double difference = relative_difference_or_nan(got[i], expected[i]);
              CHECK_MESSAGE(difference <= tolerance_of(dtype), c.name, " ", rows, " rows of ", classes, " ",
                            to_string(dtype), " ", to_string(layout), ", result ", i, ": ", difference);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("cuda cross entropy: a number that is no class makes its row NaN, and no other") {
  const DefaultDeviceGuard guard(kCpu);
  for (const int64_t classes : {37, 2500}) {
    const Tensor x = random_tensor({4, classes}, 4);
    const Tensor good = from_vector<int64_t>({2, 0, 36, 7}, {4});
    const Tensor bad = from_vector<int64_t>({2, classes, 36, -1}, {4});
    for (const double smoothing : {0.0, 0.1}) {
      const CrossEntropyCase c{
          "labels",
          {.label_smoothing = smoothing, .reduction = Reduction::none, .weight = abs(random_tensor({classes}, 5))}};
      for (const Device device : cuda_devices()) {
        const auto results = [&](const Tensor& target) {
          return on_cpu(cross_entropy_results(c, x, target, Layout::contiguous, device, DType::float32));
        };
        const Tensors expected = results(good);
        const Tensors got = results(bad);
        for (size_t i : {0, 1}) {
          for (const int64_t row : {0, 2}) {
            CHECK(select(got[i], 0, row).to_vector<double>() == select(expected[i], 0, row).to_vector<double>());
          }
          for (const int64_t row : {1, 3}) {
            for (const double value : select(got[i], 0, row).to_vector<double>()) {
              CHECK(std::isnan(value));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("cuda losses: the same bits each time, in any order of threads") {
  const DefaultDeviceGuard guard(kCpu);
  for (const int64_t length : {37, 2500}) {
    const Tensor x = random_tensor({5, length}, 1);
    for (const bool logarithm : {false, true}) {
      check_any_order("softmax", [&](Device device) {
        return softmax_results(x, random_tensor({5, length}, 2), 1, logarithm, Layout::strided, device, DType::float32);
      });
    }
    for (const CrossEntropyCase& c : cross_entropy_cases(length)) {
      const Tensor target = c.probabilities ? softmax(x, 1) : some_labels(5, length);
      check_any_order(c.name, [&](Device device) {
        return cross_entropy_results(c, x, target, Layout::contiguous, device, DType::float32);
      });
    }
  }
}

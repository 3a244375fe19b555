#include "ops/loss/loss.h"

#include "core/device.h"
#include "core/tape.h"
#include "cuda_devices.h"
#include "error_text.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "support.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

using namespace norma;
using namespace norma::test;

namespace {

constexpr int64_t kRows = 3;
constexpr int64_t kClasses = 5;

/// PyTorch's formula for one logit: (1 - t) x + (1 + (pos_weight - 1) t) (log1p(exp(-|x|)) + max(-x, 0)).
double loss_of(double x, double t, double pos_weight = 1) {
  return (1 - t) * x + (1 + (pos_weight - 1) * t) * (std::log1p(std::exp(-std::abs(x))) + std::max(-x, 0.0));
}

/// Numbers in (0, 1).
Tensor random_probabilities(const Sizes& sizes, uint64_t seed) {
  return sigmoid(random_tensor(sizes, seed)).detach();
}

void check_losses(const Tensor& result, const std::vector<double>& expected, double tolerance = 1e-14) {
  const std::vector<double> values = to(result, DType::float64).to_vector<double>();
  REQUIRE(values.size() == expected.size());
  for (size_t i = 0; i < values.size(); ++i) {
    CHECK(std::abs(values[i] - expected[i]) <= tolerance * std::max(1.0, std::abs(expected[i])));
  }
}

}  // namespace

TEST_CASE("binary_cross_entropy_with_logits: probabilities, weights and reductions") {
  const Tensor x = random_tensor({kRows, kClasses}, 1);
  const Tensor t = random_probabilities({kRows, kClasses}, 2);
  const Tensor weight = random_probabilities({kRows, 1}, 3);
  const Tensor pos_weight = mul(random_probabilities({kClasses}, 4), 3);
  const auto xs = x.to_vector<double>();
  const auto ts = t.to_vector<double>();
  const auto ws = weight.to_vector<double>();
  const auto ps = pos_weight.to_vector<double>();
  std::vector<double> plain;
  std::vector<double> weighted;
  double total = 0;
  for (size_t i = 0; i < xs.size(); ++i) {
    plain.push_back(loss_of(xs[i], ts[i]));
    weighted.push_back(ws[i / kClasses] * loss_of(xs[i], ts[i], ps[i % kClasses]));
    total += weighted.back();
  }
  for (const Layout layout : kLayouts) {
    CAPTURE(to_string(layout));
    const Tensor logits = in_layout(x, layout);
    check_losses(binary_cross_entropy_with_logits(logits, t, {.reduction = Reduction::none}), plain);
    check_losses(binary_cross_entropy_with_logits(
                     logits, t, {.weight = weight, .pos_weight = pos_weight, .reduction = Reduction::none}),
                 weighted);
    check_losses(binary_cross_entropy_with_logits(
                     logits, t, {.weight = weight, .pos_weight = pos_weight, .reduction = Reduction::sum}),
                 {total});
    check_losses(binary_cross_entropy_with_logits(logits, t, {.weight = weight, .pos_weight = pos_weight}),
                 {total / (kRows * kClasses)});
  }
}

TEST_CASE("binary_cross_entropy_with_logits: class numbers, smoothing and threshold, timm's") {
  const Tensor x = random_tensor({kRows, kClasses}, 5);
  const Tensor classes = from_vector<int64_t>({4, 0, 2}, {kRows});
  const auto xs = x.to_vector<double>();
  const auto ns = classes.to_vector<int64_t>();
  for (const double smoothing : {0.0, 0.2}) {
    for (const bool threshold : {false, true}) {
      CAPTURE(smoothing);
      CAPTURE(threshold);
      std::vector<double> expected;
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t i = 0; i < kClasses; ++i) {
          double t = smoothing / kClasses + (ns[static_cast<size_t>(row)] == i ? 1 - smoothing : 0);
          t = threshold ? (t > 0.03 ? 1 : 0) : t;  // below the smoothed zeros of 0.04
          expected.push_back(loss_of(xs[static_cast<size_t>(row * kClasses + i)], t));
        }
      }
      BinaryCrossEntropyOptions options{.label_smoothing = smoothing, .reduction = Reduction::none};
      if (threshold) {
        options.target_threshold = 0.03;
      }
      check_losses(binary_cross_entropy_with_logits(x, classes, options), expected);
    }
  }
}

TEST_CASE("binary_cross_entropy_with_logits: exact for large logits, and in 16 bits") {
  const std::vector<double> logits = {-800, -90, -20, 0, 20, 90, 800};
  std::vector<double> zeros_expected;
  std::vector<double> ones_expected;
  for (const double x : logits) {
    zeros_expected.push_back(loss_of(x, 0));
    ones_expected.push_back(loss_of(x, 1));
  }
  for (const DType dtype : {DType::float64, DType::float32}) {
    const Tensor x = to(from_vector(logits, {7}), dtype);
    const double tolerance = dtype == DType::float64 ? 1e-15 : 1e-7;
    check_losses(binary_cross_entropy_with_logits(x, zeros_like(x), {.reduction = Reduction::none}), zeros_expected,
                 tolerance);
    check_losses(binary_cross_entropy_with_logits(x, ones_like(x), {.reduction = Reduction::none}), ones_expected,
                 tolerance);
  }
  const Tensor half = to(from_vector<double>({-3, 0.5, 2}, {3}), DType::bfloat16);
  const Tensor result = binary_cross_entropy_with_logits(half, zeros_like(half), {.reduction = Reduction::none});
  CHECK(result.dtype() == DType::bfloat16);
  check_losses(result, {loss_of(-3, 0), loss_of(0.5, 0), loss_of(2, 0)}, 1.0 / 256);
}

TEST_CASE("binary_cross_entropy_with_logits: gradients, also second ones") {
  const Tensor x = random_tensor({kRows, kClasses}, 6);
  const Tensor t = random_probabilities({kRows, kClasses}, 7);
  const Tensor weight = random_probabilities({kRows, kClasses}, 8);
  const Tensor pos_weight = mul(random_probabilities({kClasses}, 9), 3);
  const Tensor classes = from_vector<int64_t>({1, 3, 0}, {kRows});
  for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
    check_gradients(
        "probabilities",
        [&](const Tensors& in) {
          return Tensors{binary_cross_entropy_with_logits(
              in[0], in[1], {.weight = weight, .pos_weight = pos_weight, .reduction = reduction})};
        },
        {x, t}, /* twice= */ true);
  }
  check_gradients(
      "class numbers",
      [&](const Tensors& in) {
        return Tensors{binary_cross_entropy_with_logits(in[0], classes, {.label_smoothing = 0.1})};
      },
      {x}, /* twice= */ true);
  check_gradients(
      "threshold",
      [&](const Tensors& in) { return Tensors{binary_cross_entropy_with_logits(in[0], t, {.target_threshold = 0.4})}; },
      {x}, /* twice= */ true);
  // At 0, where formulas with |x| have a corner: sigmoid(0) - t, and sigmoid'(0).
  Tensor zero = zeros({1}, {.dtype = DType::float64}).set_requires_grad();
  const Tensor loss = binary_cross_entropy_with_logits(zero, full({1}, 0.2, {.dtype = DType::float64}));
  const Tensor slope = grad({loss}, {zero}, {}, {.create_graph = true})[0];
  CHECK(slope.item<double>() == doctest::Approx(0.3));
  CHECK(grad({slope}, {zero})[0].item<double>() == doctest::Approx(0.25));
}

TEST_CASE("binary_cross_entropy_with_logits: error texts") {
  const Tensor x = zeros({2, 3});
  const auto error = [&](const Tensor& target, const BinaryCrossEntropyOptions& options = {}) {
    return error_of([&] { binary_cross_entropy_with_logits(x, target, options); });
  };
  const Tensor classes = from_vector<int64_t>({0, 2}, {2});
  CHECK(error(zeros({3, 2})) ==
        "binary_cross_entropy_with_logits: target: expected int64 classes for logits (N, C), or float32 probabilities "
        "of sizes [2, 3], got float32 [3, 2]");
  CHECK(error(classes, {.label_smoothing = 1}) ==
        "binary_cross_entropy_with_logits: label_smoothing: expected a value in [0, 1), got 1");
  CHECK(error(zeros({2, 3}), {.label_smoothing = 0.1}) ==
        "binary_cross_entropy_with_logits: label_smoothing: expected 0 for probabilities, got 0.1");
  CHECK(error(classes, {.weight = ones({3}).set_requires_grad()}) ==
        "binary_cross_entropy_with_logits: weight: expected constants, got a tensor that requires a gradient");
  CHECK(error_of([] {
          binary_cross_entropy_with_logits(zeros({0, 3}), zeros({0, 3}));
        }) == "binary_cross_entropy_with_logits: logits: expected at least one, got sizes [0, 3]");
}

TEST_CASE("binary_cross_entropy_with_logits: numbers that are no class, on the CPU") {
  const DefaultDeviceGuard guard(kCpu);
  const Tensor x = zeros({2, 3});
  const auto error = [&](const Tensor& target) {
    return error_of([&] { binary_cross_entropy_with_logits(x, target); });
  };
  CHECK(error(from_vector<int64_t>({0, 3}, {2})) ==
        "binary_cross_entropy_with_logits: target: expected classes in [0, 3), got 3 at index 1");
  CHECK(error(from_vector<int64_t>({-100, 1}, {2})) ==
        "binary_cross_entropy_with_logits: target: expected classes in [0, 3), got -100 at index 0");
  CHECK(error(from_vector<int64_t>({1, std::numeric_limits<int64_t>::min()}, {2})) ==
        "binary_cross_entropy_with_logits: target: expected classes in [0, 3), got -9223372036854775808 at index 1");
}

TEST_CASE("cuda binary_cross_entropy_with_logits: a number that is no class makes its row NaN, and no other") {
  const DefaultDeviceGuard guard(kCpu);
  const Tensor x = random_tensor({3, 4}, 5);
  const Tensor target = from_vector<int64_t>({1, 4, 3}, {3});
  for (const Device device : cuda_devices()) {
    for (const std::optional<double> threshold : {std::optional<double>(), std::optional<double>(0.2)}) {
      const Tensor losses =
          to(binary_cross_entropy_with_logits(
                 to(x, device), to(target, device),
                 {.label_smoothing = 0.1, .target_threshold = threshold, .reduction = Reduction::none}),
             kCpu);
      for (int64_t row = 0; row < 3; ++row) {
        for (int64_t c = 0; c < 4; ++c) {
          CHECK(std::isnan(losses.to_vector<double>()[static_cast<size_t>(row * 4 + c)]) == (row == 1));
        }
      }
    }
  }
}

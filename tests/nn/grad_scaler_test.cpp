#include "nn/optim/grad_scaler.h"

#include "core/factory.h"
#include "error_text.h"
#include "nn/optim/clip.h"
#include "nn/optim/optimizers.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "support.h"

#include <doctest/doctest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::nn;
using test::error_of;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor parameter(const std::vector<double>& values, DType dtype = DType::float32) {
  Tensor x = to(from_vector(values, {static_cast<int64_t>(values.size())}), dtype);
  x.set_requires_grad(true);
  return x;
}

std::vector<double> values_of(const Tensor& x) {
  return to(x.detach(), DType::float64).to_vector<double>();
}

}  // namespace

TEST_CASE("grad_scaler: the scale falls with each overflow and grows after so many steps without one") {
  GradScaler scaler({.init_scale = 64, .growth_factor = 4, .backoff_factor = 0.25, .growth_interval = 3});
  CHECK(scaler.factor() == 64);
  scaler.update(true);
  scaler.update(true);
  CHECK(scaler.growth_tracker() == 2);
  scaler.update(false);
  CHECK(scaler.factor() == 16);
  CHECK(scaler.growth_tracker() == 0);
  for (int i = 0; i < 3; ++i) {
    CHECK(scaler.factor() == 16);
    scaler.update(true);
  }
  CHECK(scaler.factor() == 64);
  CHECK(scaler.growth_tracker() == 0);
  scaler.set_state(std::ldexp(1.0, 127), 2);
  scaler.update(true);  // 2^129 is no float32
  CHECK(scaler.factor() == std::ldexp(1.0, 127));
  CHECK(GradScaler().factor() == 65536);
}

TEST_CASE("grad_scaler: scaled gradients make the same step, clipped or not") {
  using Make = std::function<std::unique_ptr<Optimizer>(const Tensor&)>;
  const auto groups = [](const Tensor& x) { return std::vector<ParameterGroup>{{.parameters = {{"x", x}}}}; };
  const std::vector<Make> makers = {
      [&](const Tensor& x) { return std::make_unique<Sgd>(groups(x), SgdOptions{.lr = 0.1, .momentum = 0.9}); },
      [&](const Tensor& x) { return std::make_unique<AdamW>(groups(x), AdamWOptions{.lr = 0.1}); },
      [&](const Tensor& x) { return std::make_unique<Lamb>(groups(x), LambOptions{.lr = 0.1}); },
      [&](const Tensor& x) { return std::make_unique<RmsPropTf>(groups(x), RmsPropTfOptions{.lr = 0.1}); },
  };
  for (size_t maker = 0; maker < makers.size(); ++maker) {
    for (int clip = 0; clip < 4; ++clip) {
      CAPTURE(maker);
      CAPTURE(clip);
      const auto train = [&](double scale) {
        const Tensor x = parameter({1, -2, 3});
        const std::unique_ptr<Optimizer> optimizer = makers[maker](x);
        GradScaler scaler({.init_scale = scale});
        for (int step = 0; step < 3; ++step) {
          optimizer->zero_grad();
          scaler.scale(sum(mul(mul(x, x), 3.0 + step))).backward();
          optimizer->set_grad_scale(scaler.factor());
          if (clip == 1) {
            clip_grad_norm_({x}, 0.5 * scale);
          } else if (clip == 2) {
            clip_grad_value_({x}, 0.5 * scale);
          } else if (clip == 3) {
            adaptive_clip_grad({x}, {.factor = 0.01 * scale});
          }
          optimizer->step();
        }
        return values_of(x);
      };
      const std::vector<double> expected = train(1);
      const std::vector<double> got = train(1024);
      CHECK(expected[0] != 1);
      for (size_t i = 0; i < expected.size(); ++i) {
        CHECK(std::abs(got[i] - expected[i]) <= 1e-6 * std::abs(expected[i]));
      }
    }
  }
}

TEST_CASE("grad_scaler: gradients of float16 that would be 0 without it") {
  const auto moved = [](double scale) {
    const Tensor x = parameter({1, 2}, DType::float16);
    Sgd optimizer({{.parameters = {{"x", x}}}}, {.lr = 1024});
    GradScaler scaler({.init_scale = scale});
    const Tensor loss = mul(sum(to(x, DType::float32)), 1e-9);
    scaler.scale(loss).backward();
    optimizer.set_grad_scale(scaler.factor());
    optimizer.step();
    return values_of(optimizer.master_weights()[0].second);
  };
  CHECK(moved(1)[0] == 1);
  CHECK(std::abs(1 - moved(65536)[0] - 1024e-9) <= 1e-7);
}

TEST_CASE("grad_scaler: which gradients are finite") {
  for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64}) {
    CAPTURE(dtype);
    const Tensor a = parameter({1, 2, 3}, dtype);
    const Tensor b = parameter({1}, dtype);
    CHECK(gradients_are_finite({a, b}));  // there are none
    for (const double value : {0.0, 60000.0, kInfinity, -kInfinity, std::nan("")}) {
      CAPTURE(value);
      Tensor x = a;
      x.set_grad(to(from_vector<double>({1, value, 2}, {3}), dtype));
      CHECK(gradients_are_finite({a, b}) == std::isfinite(value));
    }
  }
  Tensor large = parameter({1, 2});
  large.set_grad(to(from_vector<double>({3e38, -3e38}, {2}), DType::float32));
  CHECK(gradients_are_finite({large}));
  Tensor wide = parameter({1, 2}, DType::float64);
  wide.set_grad(from_vector<double>({1e200, -1e200}, {2}));  // their squares leave float64
  CHECK(gradients_are_finite({large, wide}));
}

TEST_CASE("grad_scaler: error texts") {
  const auto made = [](const GradScalerOptions& options) { return error_of([&] { GradScaler scaler(options); }); };
  CHECK(made({.init_scale = 0}) == "grad_scaler: init_scale: expected a finite positive number, got 0");
  CHECK(made({.growth_factor = 1}) == "grad_scaler: growth_factor: expected a finite number greater than 1, got 1");
  CHECK(made({.backoff_factor = 1}) == "grad_scaler: backoff_factor: expected a number in (0, 1), got 1");
  CHECK(made({.growth_interval = 0}) == "grad_scaler: growth_interval: expected at least 1, got 0");
  GradScaler scaler;
  CHECK(error_of([&] { scaler.set_state(-1, 0); }) == "grad_scaler: factor: expected a finite positive number, got -1");
  CHECK(error_of([&] { scaler.set_state(1, 2000); }) ==
        "grad_scaler: growth_tracker: expected a whole number from 0 to 1999, got 2000");
  CHECK(error_of([&] { (void)scaler.scale(parameter({1}, DType::float16)); }) ==
        "grad_scaler: loss: expected float32 or float64, got float16");
  const Tensor x = parameter({1});
  Sgd optimizer({{.parameters = {{"x", x}}}}, {.lr = 1});
  CHECK(error_of([&] { optimizer.set_grad_scale(kInfinity); }) ==
        "optimizer: grad_scale: expected a finite positive number, got inf");
}

#include "lab/telemetry/dynamics.h"

#include "core/copy.h"
#include "core/device.h"
#include "core/factory.h"
#include "core/random.h"
#include "core/tape.h"
#include "error_text.h"
#include "lab/telemetry/health.h"
#include "lab/telemetry/recorder.h"
#include "nn/conv.h"
#include "nn/layers.h"
#include "nn/norm/batch_norm.h"
#include "nn/norm/factory.h"
#include "nn/norm/map_norms.h"
#include "nn/optim/optimizers.h"
#include "nn/sequential.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::lab;

namespace {

constexpr double kGradScale = 1024;
constexpr DynamicsParts kAllOfLayers{.gradients = true, .weights = true, .saturation = true};

/// A layer that gives its output to a norm and to whatever `other` does with it.
class Branching : public nn::Module {
 public:
  Branching(std::shared_ptr<nn::Module> norm, std::function<Tensor(nn::Module& conv, const Tensor& y)> other)
      : conv_(register_module("conv", std::make_shared<nn::Conv2d>(4, 4, 1, nn::Conv2dOptions{.bias = false}))),
        norm_(register_module("norm", std::move(norm))),
        other_(std::move(other)) {}
  Tensor forward(const Tensor& x) override {
    const Tensor y = (*conv_)(x);
    const Tensor normed = (*norm_)(y);
    const Tensor more = other_(*conv_, y);
    return more.defined() ? add(normed, more) : normed;
  }
  [[nodiscard]] std::string name() const override { return "Branching"; }

 private:
  std::shared_ptr<nn::Conv2d> conv_;
  std::shared_ptr<nn::Module> norm_;
  std::function<Tensor(nn::Module& conv, const Tensor& y)> other_;
};

DynamicsSample dynamics_of(nn::Module& model, const Tensor& x, const TensorFunction& loss,
                           const nn::Optimizer* optimizer = nullptr, const DynamicsParts& parts = kAllOfLayers) {
  model.zero_grad();
  HealthSample found;
  const LayerTable table(model);
  HealthStep step(
      table, 1, [&](HealthSample one) { found = std::move(one); },
      std::make_unique<DynamicsReader>(table, parts, optimizer));
  const Tensor value = mul(loss({model(x)})[0], kGradScale);
  step.after_forward(value, kGradScale);
  value.backward();
  step.after_backward();
  step.after_update();
  REQUIRE(found.dynamics);
  return *found.dynamics;
}

const LayerDynamics& layer(const DynamicsSample& sample, std::string_view name) {
  const auto found = std::ranges::find(sample.layers, name, &LayerDynamics::layer);
  REQUIRE(found != sample.layers.end());
  return *found;
}

double norm_of(const Tensor& x) {
  double sum = 0;
  for (const double value : x.to_vector<double>()) {
    sum += value * value;
  }
  return std::sqrt(sum);
}

Tensors cubes(const Tensors& y) {
  return {sum(mul(y[0], mul(y[0], y[0])))};
}

Tensor input() {
  Generator random(3);
  return randn({4, 4, 5, 6}, {}, random);
}

}  // namespace

TEST_CASE("dynamics: gradient norms, weight norms and effective learning rates are those of plain sums") {
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    CAPTURE(to_string(format));
    nn::Sequential model{std::make_shared<nn::Conv2d>(4, 6, 3, nn::Conv2dOptions{.padding = 1}),
                         std::make_shared<nn::BatchNorm2d>(6),
                         std::make_shared<nn::ReLU>(),
                         std::make_shared<nn::Conv2d>(6, 4, 1),
                         std::make_shared<nn::GroupNorm>(2, 4),
                         std::make_shared<nn::Conv2d>(4, 3, 1)};
    model.to(format);
    const nn::NamedTensors named = model.named_parameters();
    nn::Sgd optimizer({{.parameters = {named.begin(), named.begin() + 4}, .lr_scale = 0.5},
                       {.parameters = {named.begin() + 4, named.end()}}},
                      {.lr = 0.25});
    const DynamicsSample found = dynamics_of(model, copy_of(input(), format), cubes, &optimizer);
    CHECK(found.lr == 0.25);
    std::vector<std::string> names;
    for (const LayerDynamics& one : found.layers) {
      names.push_back(one.layer);
    }
    CHECK(names == std::vector<std::string>{"0", "1", "3", "4", "5"});
    for (const auto& [name, weight] : model.named_parameters()) {
      if (!name.ends_with(".weight")) {
        continue;
      }
      CAPTURE(name);
      const LayerDynamics& one = layer(found, name.substr(0, name.find('.')));
      REQUIRE(norm_of(weight.grad()) > 0);
      CHECK(one.gradient_norm == doctest::Approx(norm_of(weight.grad()) / kGradScale).epsilon(1e-6));
      CHECK(one.weight_norm == doctest::Approx(norm_of(weight)).epsilon(1e-6));
      CHECK(std::isnan(one.saturation));
    }
    const auto& first = dynamic_cast<const nn::Conv2d&>(*model.children()[0].second);
    const auto& second = dynamic_cast<const nn::Conv2d&>(*model.children()[3].second);
    // Batch norm takes the bias away; group norm takes the scale of weight and bias together.
    CHECK(layer(found, "0").effective_lr ==
          doctest::Approx(0.125 / std::pow(norm_of(first.weight()), 2)).epsilon(1e-6));
    CHECK(layer(found, "3").effective_lr ==
          doctest::Approx(0.25 / (std::pow(norm_of(second.weight()), 2) + std::pow(norm_of(second.bias()), 2)))
              .epsilon(1e-6));
    for (const std::string name : {"1", "4", "5"}) {
      CHECK(std::isnan(layer(found, name).effective_lr));
    }
    const DynamicsSample some = dynamics_of(model, input(), cubes, &optimizer, {.gradients = true});
    CHECK(std::isnan(layer(some, "0").weight_norm));
    CHECK(std::isnan(layer(some, "0").effective_lr));
    CHECK(layer(some, "0").gradient_norm > 0);
  }
}

TEST_CASE("dynamics: on a device whose memory the host cannot read the numbers are the same") {
  const auto on = [](Device device) {
    const DefaultDeviceGuard guard(device);
    manual_seed(8);
    nn::Sequential model{std::make_shared<nn::Conv2d>(4, 4, 1), std::make_shared<nn::GroupNorm>(2, 4),
                         std::make_shared<nn::DynamicErf>(4)};
    const nn::Sgd optimizer({{.parameters = model.named_parameters()}}, {.lr = 0.5});
    Generator random(3);
    return dynamics_of(model, to_device(randn({4, 4, 5, 6}, {.device = kCpu}, random), device), cubes, &optimizer);
  };
  const DynamicsSample here = on(kCpu);
  const DynamicsSample there = on(kCudaEmulated);
  REQUIRE(here.layers.size() == 3);
  REQUIRE(there.layers.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(there.layers[i].gradient_norm == doctest::Approx(here.layers[i].gradient_norm).epsilon(1e-4));
    CHECK(there.layers[i].weight_norm == doctest::Approx(here.layers[i].weight_norm).epsilon(1e-6));
  }
  CHECK(here.layers[0].effective_lr > 0);
  CHECK(there.layers[0].effective_lr == doctest::Approx(here.layers[0].effective_lr).epsilon(1e-6));
  CHECK(here.layers[2].saturation >= 0);
  CHECK(there.layers[2].saturation == doctest::Approx(here.layers[2].saturation).epsilon(0.02));
}

TEST_CASE("dynamics: a weight is scale-invariant where its scale leaves the output alone, with each norm") {
  for (const auto& known : nn::built_in_norms()) {
    const std::string& norm = known.first;
    CAPTURE(norm);
    for (const bool bias : {false, true}) {
      CAPTURE(bias);
      nn::Sequential model{std::make_shared<nn::Conv2d>(4, 4, 1, nn::Conv2dOptions{.bias = bias}),
                           nn::make_norm(norm == "group" ? "group:2" : norm, 4)};
      nn::make_lazy_parameters(model, {1, 4, 5, 6});
      for (const Tensor& x : model.children()[1].second->parameters()) {
        copy_into(add(x.detach(), 0.5), x.detach());  // at its start values seednorm is rms norm
      }
      const nn::Sgd optimizer({{.parameters = model.named_parameters()}}, {.lr = 1});
      for (const bool training : {true, false}) {
        CAPTURE(training);
        const auto forward = [&] {
          model.train(training);
          return model(input()).detach();
        };
        model.train(training);
        const double rate = layer(dynamics_of(model, input(), cubes, &optimizer), "0").effective_lr;
        forward();  // lazy and running statistics have begun
        const Tensor before = forward();
        for (const Tensor& x : model.children()[0].second->parameters()) {
          copy_into(mul(x.detach(), 3), x.detach());
        }
        const Tensor after = forward();
        const double change = norm_of(sub(after, before)) / norm_of(before);
        const bool same = change < 1e-3;
        CHECK_MESSAGE(same != std::isnan(rate), norm, ": the output changes by ", change, ", the rate is ", rate);
      }
    }
  }
}

TEST_CASE("dynamics: a bias counts beside the weight unless each channel is a group") {
  for (const auto& [norm, counts] : {std::pair{"group:4", false}, std::pair{"group:2", true}}) {
    CAPTURE(norm);
    nn::Sequential model{std::make_shared<nn::Conv2d>(4, 4, 1, nn::Conv2dOptions{.bias = true}),
                         nn::make_norm(norm, 4)};
    const nn::Sgd optimizer({{.parameters = model.named_parameters()}}, {.lr = 1});
    const auto rate = [&] { return layer(dynamics_of(model, input(), cubes, &optimizer), "0").effective_lr; };
    const double before = rate();
    for (const auto& [name, x] : model.named_parameters()) {
      if (name == "0.bias") {
        copy_into(mul(x.detach(), 100), x.detach());
      }
    }
    CHECK((rate() < 0.9 * before) == counts);
  }
}

TEST_CASE("dynamics: a weight has an effective learning rate only if a norm is all that reads the output") {
  const auto rate_with = [](const std::function<Tensor(nn::Module&, const Tensor&)>& other) {
    Branching model(std::make_shared<nn::BatchNorm2d>(4), other);
    const nn::Sgd optimizer({{.parameters = model.named_parameters()}}, {.lr = 1});
    return layer(dynamics_of(model, input(), cubes, &optimizer), "conv").effective_lr;
  };
  CHECK(rate_with([](nn::Module&, const Tensor&) { return Tensor(); }) > 0);
  CHECK(std::isnan(rate_with([](nn::Module&, const Tensor& y) { return y; })));
  CHECK(std::isnan(rate_with([](nn::Module& conv, const Tensor&) { return conv(input()); })));

  nn::Sequential between{std::make_shared<nn::Conv2d>(4, 4, 1), std::make_shared<nn::GELU>(),
                         std::make_shared<nn::BatchNorm2d>(4)};
  const nn::Sgd optimizer({{.parameters = between.named_parameters()}}, {.lr = 1});
  CHECK(std::isnan(layer(dynamics_of(between, input(), cubes, &optimizer), "0").effective_lr));
  // Without an optimizer nothing has a learning rate, and a frozen weight has none, and no gradient.
  nn::Sequential model{std::make_shared<nn::Conv2d>(4, 4, 1), std::make_shared<nn::BatchNorm2d>(4)};
  const DynamicsSample alone = dynamics_of(model, input(), cubes);
  CHECK(std::isnan(alone.lr));
  CHECK(std::isnan(layer(alone, "0").effective_lr));
  CHECK(layer(alone, "0").weight_norm > 0);
  Tensor(model.named_parameters()[0].second).set_requires_grad(false);
  CHECK(std::isnan(layer(dynamics_of(model, input(), cubes, &optimizer), "0").gradient_norm));
}

TEST_CASE("dynamics: saturation is the share of inputs where the slope is below a tenth of the largest") {
  Generator random(5);
  const std::vector<double> values = mul(randn({4, 3, 8, 9}, {.dtype = DType::float64}, random), 2).to_vector<double>();
  const auto share_below = [&](const std::function<double(double)>& slope, const Tensor& x) {
    double largest = 0;
    for (double u = -20; u < 20; u += 1e-4) {  // by search, not by what is known of the function
      largest = std::max(largest, slope(u));
    }
    const std::vector<double> rounded = x.to_vector<double>();
    return static_cast<double>(std::ranges::count_if(rounded, [&](double one) { return slope(one) < 0.1 * largest; })) /
           static_cast<double>(rounded.size());
  };
  for (const Device device : {kCpu, kCudaEmulated}) {
    const DefaultDeviceGuard guard(device);
    for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16}) {
      CAPTURE(to_string(dtype));
      const Tensor x =
          to(to_device(from_vector(values, {4, 3, 8, 9}, {.dtype = DType::float64, .device = kCpu}), device), dtype);
      for (const double alpha : {0.5, -1.25}) {
        CAPTURE(alpha);
        const nn::DynamicTanh tanh(3, {.alpha = alpha});
        const double tanh_share = share_below([&](double u) { return 1 / std::pow(std::cosh(alpha * u), 2); }, x);
        REQUIRE(tanh_share > 0.05);
        CHECK(saturation_of(tanh.bend().value(), x) == doctest::Approx(tanh_share).epsilon(1e-9));
        const nn::DynamicErf erf(3, {.alpha = alpha, .shift = 0.75});
        const double erf_share = share_below([&](double u) { return std::exp(-std::pow(alpha * u + 0.75, 2)); }, x);
        REQUIRE(erf_share > 0.05);
        CHECK(saturation_of(erf.bend().value(), x) == doctest::Approx(erf_share).epsilon(1e-9));
      }
    }
  }
  nn::Sequential model{std::make_shared<nn::Conv2d>(4, 4, 1),
                       std::make_shared<nn::DynamicTanh>(4, nn::DynamicTanhLayerOptions{.alpha = 3}),
                       std::make_shared<nn::BatchNorm2d>(4)};
  const DynamicsSample found = dynamics_of(model, input(), cubes);
  CHECK(layer(found, "1").saturation > 0);
  CHECK(layer(found, "1").saturation < 1);
  CHECK(std::isnan(layer(found, "0").saturation));
  CHECK(std::isnan(layer(found, "2").saturation));
}

TEST_CASE("dynamics: names of the parts, and back") {
  CHECK(parse_dynamics("train", "") == DynamicsParts{});
  CHECK_FALSE(parse_dynamics("train", "").any());
  CHECK(parse_dynamics("train", "all") ==
        DynamicsParts{.gradients = true, .weights = true, .saturation = true, .sharpness = true});
  CHECK(to_string(parse_dynamics("train", "sharpness,weights")) == "weights,sharpness");
  for (const std::string& name : dynamics_names()) {
    CHECK(to_string(parse_dynamics("train", name)) == name);
  }
  CHECK(test::error_of([] { parse_dynamics("train", "gradient"); }) ==
        "train: dynamics: expected some of gradients, weights, saturation, sharpness, or all, got 'gradient'");
  CHECK(test::error_of([] { parse_dynamics("train", ",weights"); }) ==
        "train: dynamics: expected some of gradients, weights, saturation, sharpness, or all, got ''");
}

TEST_CASE("dynamics: the schedule has the first step, the last one, and few for sharpness") {
  for (const int64_t total : {1, 2, 3, 10, 49, 50, 199, 1000, 123'457}) {
    CAPTURE(total);
    const TelemetrySchedule schedule(total, /* dynamics= */ true);
    CHECK(schedule.is_for_health(1));
    CHECK(schedule.is_for_health(total));
    CHECK(schedule.is_for_sharpness(1));
    CHECK(schedule.is_for_sharpness(total));
    CHECK(static_cast<int64_t>(schedule.health().size()) <= std::min<int64_t>(9, 2 + total / 50));
    int64_t sharp = 0;
    for (const int64_t step : schedule.health()) {
      CHECK(!schedule.is_timed(step));
      sharp += schedule.is_for_sharpness(step) ? 1 : 0;
    }
    CHECK(sharp == std::min<int64_t>(5, static_cast<int64_t>(schedule.health().size())));
    for (int64_t step = 1; step <= std::min<int64_t>(total, 2000); ++step) {
      CHECK((!schedule.is_for_sharpness(step) || schedule.is_for_health(step)));
    }
  }
  CHECK(TelemetrySchedule(400, true).health() == std::set<int64_t>{1, 50, 100, 150, 200, 250, 300, 350, 400});
  CHECK_FALSE(TelemetrySchedule(400).is_for_sharpness(400));
}

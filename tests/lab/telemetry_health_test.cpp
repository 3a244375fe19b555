#include "core/copy.h"
#include "core/device.h"
#include "core/factory.h"
#include "core/tape.h"
#include "lab/telemetry/health.h"
#include "lab/telemetry/layer_log.h"
#include "models/registry.h"
#include "nn/conv.h"
#include "nn/layers.h"
#include "nn/norm/batch_norm.h"
#include "nn/norm/factory.h"
#include "nn/sequential.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// The numbers of a network's layers in one step: those of activations, gradients, and of norms.

using namespace norma;
using namespace norma::lab;

namespace {

/// Of the loss in looked_at(), which is no part of what it finds.
constexpr double kGradScale = 1024;

HealthSample looked_at(nn::Module& model, const Tensor& x, const TensorFunction& loss) {
  HealthSample found;
  const LayerTable table(model);
  HealthStep step(table, 7, [&](HealthSample one) { found = std::move(one); });
  const Tensor value = mul(loss({model(x)})[0], kGradScale);
  step.after_forward(value, kGradScale);
  value.backward();
  step.after_backward();
  step.after_update();
  return found;
}

TensorHealth by_hand(const Tensor& x) {
  const std::vector<double> values = x.to_vector<double>();
  double sum = 0;
  double largest = 0;
  for (const double value : values) {
    sum += value;
    largest = std::max(largest, std::abs(value));
  }
  const double mean = sum / static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) {
    squares += (value - mean) * (value - mean);
  }
  return {.mean = mean, .deviation = std::sqrt(squares / static_cast<double>(values.size())), .largest = largest};
}

void check_same(const TensorHealth& a, const TensorHealth& b) {
  CHECK(a.mean == doctest::Approx(b.mean).epsilon(1e-5).scale(b.deviation));
  CHECK(a.deviation == doctest::Approx(b.deviation).epsilon(1e-5));
  CHECK(a.largest == doctest::Approx(b.largest).epsilon(1e-6));
  CHECK(a.non_finite == b.non_finite);
}

}  // namespace

TEST_CASE("telemetry: the numbers of a layer are those that a hook sees") {
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    CAPTURE(to_string(format));
    nn::Sequential model{std::make_shared<nn::Conv2d>(2, 4, 3, nn::Conv2dOptions{.padding = 1}),
                         std::make_shared<nn::BatchNorm2d>(4), std::make_shared<nn::ReLU>(),
                         std::make_shared<nn::Conv2d>(4, 3, 1)};
    model.to(format);
    const auto& norm = dynamic_cast<const nn::BatchNorm2d&>(*model.children()[1].second);
    auto* gamma = norm.weight().data<float>();
    gamma[0] = 0.5F;
    gamma[3] = 2;
    Tensors outputs(4);
    Tensors gradients(4);
    for (size_t i = 0; i < outputs.size(); ++i) {
      model.children()[i].second->register_forward_hook([&, i](const nn::Module&, const Tensor&, const Tensor& y) {
        outputs[i] = y.detach();
        y.register_hook([&, i](const Tensor& dy) {
          gradients[i] = dy;
          return Tensor();
        });
      });
    }
    const Tensor x = copy_of(randn({3, 2, 5, 6}), format);
    const Tensor r = randn({3, 3, 5, 6});
    const HealthSample found = looked_at(model, x, [&](const Tensors& y) -> Tensors { return {sum(y[0] * r)}; });
    CHECK(found.step == 7);
    REQUIRE(found.layers.size() == 3);  // relu has no parameters
    const size_t places[] = {0, 1, 3};
    for (size_t i = 0; i < 3; ++i) {
      CAPTURE(i);
      const LayerHealth& layer = found.layers[i];
      CHECK(layer.layer == std::to_string(places[i]));
      check_same(layer.output, by_hand(outputs[places[i]]));
      REQUIRE(layer.gradient);
      check_same(*layer.gradient, by_hand(div(gradients[places[i]], kGradScale)));
      CHECK(layer.dead_channels == 0);
    }
    const LayerHealth& layer = found.layers[1];
    CHECK(layer.kind == LayerKind::norm);
    REQUIRE(layer.gamma);
    CHECK(layer.gamma->min == 0.5);
    CHECK(layer.gamma->max == 2);
    CHECK(layer.gamma->mean == doctest::Approx(1.125));
    CHECK(layer.gamma->deviation ==
          doctest::Approx(std::sqrt((0.625 * 0.625 + 2 * 0.125 * 0.125 + 0.875 * 0.875) / 4)));
    CHECK(layer.beta->max == 0);
    CHECK_FALSE(found.layers[0].gamma);

    // One step from mean 0 and variance 1 with momentum 0.1.
    REQUIRE(layer.gap);
    const std::vector<double> values = copy_of(outputs[0], MemoryFormat::contiguous).to_vector<double>();
    double means = 0;
    double deviations = 0;
    double total = 0;
    for (size_t c = 0; c < 4; ++c) {
      std::vector<double> channel;
      for (size_t i = 0; i < values.size(); ++i) {
        if (i / 30 % 4 == c) {
          channel.push_back(values[i]);
        }
      }
      double mean = 0;
      for (const double value : channel) {
        mean += value / 90;
      }
      double var = 0;
      for (const double value : channel) {
        var += (value - mean) * (value - mean) / 89;
      }
      const double running = 0.9 + 0.1 * var;
      means += 0.81 * mean * mean;
      deviations += (std::sqrt(var) - std::sqrt(running)) * (std::sqrt(var) - std::sqrt(running));
      total += running;
    }
    CHECK(layer.gap->mean == doctest::Approx(std::sqrt(means / total)).epsilon(1e-4));
    CHECK(layer.gap->deviation == doctest::Approx(std::sqrt(deviations / total)).epsilon(1e-4));
  }
}

TEST_CASE("telemetry: a norm of one's own is looked at behind its relu, as Norma's are") {
  class OwnRms : public nn::Module {
   public:
    explicit OwnRms(int64_t channels) : weight_(register_parameter("weight", ones({channels}))) {}
    Tensor forward(const Tensor& x) override { return rms_norm_2d(x, weight_); }
    [[nodiscard]] std::string name() const override { return "OwnRms"; }

   private:
    Tensor weight_;
  };
  nn::register_norm("own_rms", [](int64_t channels) { return std::make_shared<OwnRms>(channels); });
  const auto sample_of = [](const std::string& norm) {
    const auto model = models::create_model("resnet18", {.num_classes = 10, .norm = norm, .small_stem = true});
    uint64_t seed = 3;
    for (const auto& [name, x] : model->named_parameters()) {
      Generator random(++seed);
      copy_into(mul(randn(x.sizes(), {}, random), 0.1), x.detach());
    }
    Generator random(2);
    const Tensor x = randn({2, 3, 16, 16}, {}, random);
    return looked_at(*model, x, [](const Tensors& y) -> Tensors { return {sum(y[0])}; });
  };
  const HealthSample theirs = sample_of("rms2d");
  const HealthSample own = sample_of("own_rms");
  REQUIRE(own.layers.size() == theirs.layers.size());
  bool any_dead = false;
  for (size_t i = 0; i < own.layers.size(); ++i) {
    CAPTURE(own.layers[i].layer);
    CHECK(own.layers[i].kind == theirs.layers[i].kind);
    CHECK(own.layers[i].dead_channels == theirs.layers[i].dead_channels);
    check_same(own.layers[i].output, theirs.layers[i].output);
    any_dead = any_dead || (own.layers[i].kind == LayerKind::norm && own.layers[i].dead_channels > 0);
  }
  CHECK(any_dead);
}

TEST_CASE("telemetry: dead channels, and elements that are not finite, for either way to look") {
  for (const Scan scan : {Scan::host, Scan::ops}) {
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
      for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
        CAPTURE(to_string(format));
        CAPTURE(to_string(dtype));
        std::vector<double> values(2 * 5 * 3 * 3);
        for (size_t i = 0; i < values.size(); ++i) {
          const size_t channel = i / 9 % 5;
          const double zero = i % 2 == 0 ? 0.0 : -0.0;
          values[i] = channel == 1 || channel == 4 ? zero : 0.25 * static_cast<double>(i % 7) - 1.5;
        }
        values[40] = 0;  // a dead element is not a dead channel
        Tensor x = copy_of(from_vector(values, {2, 5, 3, 3}), format, dtype);
        Look look = look_at(x, scan);
        CHECK(look.dead_channels == doctest::Approx(0.4));
        check_same(look.health, by_hand(x));
        values[0] = std::numeric_limits<double>::infinity();
        values[65] = std::numeric_limits<double>::quiet_NaN();
        x = copy_of(from_vector(values, {2, 5, 3, 3}), format, dtype);
        look = look_at(x, scan);
        CHECK(look.health.non_finite == 2);
        CHECK(std::isnan(look.health.largest));
        CHECK(look.dead_channels == doctest::Approx(0.4));
      }
    }
    const Tensor with_gaps = narrow(randn({3, 6, 4, 4}), 1, 1, 3);
    check_same(look_at(with_gaps, scan).health, by_hand(with_gaps));
    const Tensor rows = randn({5, 7});
    check_same(look_at(rows, scan).health, by_hand(rows));
  }
}

TEST_CASE("telemetry: on a device whose memory the host cannot read the numbers are the same") {
  const auto weight = from_vector<float>({0.5F, -1, 2, 0.25F, 1, -0.5F}, {3, 2, 1, 1}, {.device = kCpu});
  const Tensor x = randn({4, 2, 5, 6}, {.device = kCpu});
  const auto on = [&](Device device) {
    const DefaultDeviceGuard guard(device);
    nn::Sequential model{std::make_shared<nn::Conv2d>(2, 3, 1, nn::Conv2dOptions{.bias = false}),
                         std::make_shared<nn::BatchNorm2d>(3)};
    model.load_state_dict({{"0.weight", weight}}, {.strict = false});
    return looked_at(model, to(x, device), [](const Tensors& y) -> Tensors { return {sum(y[0] * y[0] * y[0])}; });
  };
  const HealthSample here = on(kCpu);
  const HealthSample there = on(kCudaEmulated);
  REQUIRE(here.layers.size() == 2);
  REQUIRE(there.layers.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    check_same(there.layers[i].output, here.layers[i].output);
    CHECK(there.layers[i].gradient->deviation == doctest::Approx(here.layers[i].gradient->deviation).epsilon(1e-4));
  }
  CHECK(there.layers[1].gamma->max == 1);
  CHECK(there.layers[1].gap->mean == doctest::Approx(here.layers[1].gap->mean).epsilon(1e-4));
}

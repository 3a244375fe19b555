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
#include "ops/attention/attention.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
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
    CHECK(layer.input_deviation == doctest::Approx(by_hand(outputs[0]).deviation).epsilon(1e-5));
    CHECK(std::isnan(found.layers[0].input_deviation));  // of norms alone

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

namespace {

/// Attention of every kind that a call may ask for.
struct OfHeads : nn::Module {
  AttentionOptions options;
  explicit OfHeads(AttentionOptions chosen) : options(std::move(chosen)) {}
  Tensor forward(const Tensor& x) override {
    return scaled_dot_product_attention(narrow(x, 3, 0, 4), narrow(x, 3, 4, 4), narrow(x, 3, 8, 2), options);
  }
  [[nodiscard]] std::string name() const override { return "OfHeads"; }
};

/// Largest logit and mean entropy of a head of x, which holds q, k and v side by side, by plain loops.
AttentionHead by_loops(const Tensor& x, int64_t head, double scale,
                       const std::function<double(int64_t, int64_t)>& mask) {
  const std::vector<double> values = x.to_vector<double>();
  const int64_t tokens = x.size(2);
  const auto at = [&](int64_t image, int64_t token, int64_t c) {
    return values[static_cast<size_t>(((image * x.size(1) + head) * tokens + token) * 10 + c)];
  };
  AttentionHead found{.layer = "", .head = head, .largest_logit = -INFINITY, .entropy = 0};
  for (int64_t image = 0; image < x.size(0); ++image) {
    for (int64_t i = 0; i < tokens; ++i) {
      std::vector<double> z;
      double total = 0;
      for (int64_t j = 0; j < tokens; ++j) {
        double product = mask(i, j);
        for (int64_t c = 0; c < 4; ++c) {
          product += scale * at(image, i, c) * at(image, j, 4 + c);
        }
        if (product > -INFINITY) {
          z.push_back(product);
          total += std::exp(product);
          found.largest_logit = std::max(found.largest_logit, product);
        }
      }
      for (const double one : z) {
        found.entropy -= std::exp(one) / total * std::log(std::exp(one) / total);
      }
    }
  }
  found.entropy /= static_cast<double>(x.size(0) * tokens);
  return found;
}

}  // namespace

TEST_CASE("telemetry: logits and entropy of each head, for each kind of attention") {
  constexpr int64_t kTokens = 7;
  Generator random(5);
  const Tensor x = mul(randn({3, 2, kTokens, 10}, {}, random), 2).detach().set_requires_grad();
  const Tensor numbers = randn({3, 1, kTokens, kTokens}, {}, random);
  const auto no_mask = [](int64_t, int64_t) { return 0.0; };
  const auto first_keys = [](int64_t i, int64_t j) { return j <= i ? 0.0 : -INFINITY; };
  Tensor seen = full({kTokens, kTokens}, 1, {.dtype = DType::boolean});
  copy_into(full({kTokens, 2}, 0, {.dtype = DType::boolean}), narrow(seen, 1, 3, 2));
  const auto check_heads = [&](const AttentionOptions& options, double scale, const auto& mask) {
    OfHeads model(options);
    const HealthSample sample = looked_at(model, x, [](const Tensors& y) -> Tensors { return {sum(y[0])}; });
    REQUIRE(sample.attention.size() == 2);
    for (int64_t head = 0; head < 2; ++head) {
      const AttentionHead expected = by_loops(x, head, scale, mask);
      const AttentionHead& found = sample.attention[static_cast<size_t>(head)];
      CHECK(found.head == head);
      CHECK(found.largest_logit == doctest::Approx(expected.largest_logit).epsilon(1e-5));
      CHECK(found.entropy == doctest::Approx(expected.entropy).epsilon(1e-5));
    }
  };
  check_heads({}, 0.5, no_mask);
  check_heads({.scale = 1.25}, 1.25, no_mask);
  check_heads({.causal = true}, 0.5, first_keys);
  check_heads({.mask = seen}, 0.5, [](int64_t, int64_t j) { return j == 3 || j == 4 ? -INFINITY : 0.0; });
  const Tensor one = narrow(numbers, 0, 0, 1);
  const std::vector<double> values = one.to_vector<double>();
  check_heads({.mask = one}, 0.5, [&](int64_t i, int64_t j) { return values[static_cast<size_t>(i * kTokens + j)]; });
  // A mask for each image: all images in one call and one after the other have the same heads.
  OfHeads model({.mask = numbers});
  const auto heads_in = [&](const Tensor& images, const Tensor& mask) {
    model.options.mask = mask;
    return looked_at(model, images, [](const Tensors& y) -> Tensors { return {sum(y[0])}; }).attention;
  };
  const std::vector<AttentionHead> all = heads_in(x, numbers);
  double entropy = 0;
  double largest = -INFINITY;
  for (int64_t image = 0; image < 3; ++image) {
    const Tensor alone = narrow(x.detach(), 0, image, 1).set_requires_grad();
    const AttentionHead head = heads_in(alone, narrow(numbers, 0, image, 1))[1];
    entropy += head.entropy / 3;
    largest = std::max(largest, head.largest_logit);
  }
  CHECK(all[1].entropy == doctest::Approx(entropy).epsilon(1e-6));
  CHECK(all[1].largest_logit == largest);
}

TEST_CASE("telemetry: the heads of a vit are those of its q_norm and k_norm, with checkpoints and without") {
  for (const bool checkpoints : {false, true}) {
    CAPTURE(checkpoints);
    const auto model = models::create_model(
        "vit_tiny",
        {.num_classes = 10, .patch_size = 4, .grad_checkpointing = checkpoints, .image_size = 8, .qk_norm = "layer2d"});
    Generator random(2);
    for (const auto& [name, weight] : model->named_parameters()) {
      if (name.ends_with("q_norm.weight")) {  // so that the layers differ
        fill_(weight.detach(), name.starts_with("blocks.10.") ? 4 : 1);
      }
    }
    const HealthSample sample =
        looked_at(*model, randn({2, 3, 8, 8}, {}, random), [](const Tensors& y) -> Tensors { return {sum(y[0])}; });
    REQUIRE(sample.attention.size() == 36);
    for (size_t i = 0; i < sample.attention.size(); ++i) {
      const AttentionHead& head = sample.attention[i];
      CHECK(head.layer == fmt::format("blocks.{}.attn", i / 3));
      CHECK(head.head == static_cast<int64_t>(i % 3));
      // |q · k| <= 64, the squared norm of normalized queries and keys, times 1/8
      CHECK(head.largest_logit <= (i / 3 == 10 ? 32.1 : 8.1));
      CHECK(head.entropy > 0);
      CHECK(head.entropy < std::log(5) + 1e-6);
    }
    const auto largest = [&](size_t block) { return sample.attention[block * 3].largest_logit; };
    CHECK(largest(10) > 1.5 * largest(9));
  }
}

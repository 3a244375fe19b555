#include "core/device.h"
#include "core/event.h"
#include "core/factory.h"
#include "core/random.h"
#include "lab/telemetry/dynamics.h"
#include "lab/telemetry/health.h"
#include "lab/telemetry/recorder.h"
#include "lab/telemetry/sharpness.h"
#include "lab/telemetry/telemetry.h"
#include "nn/conv.h"
#include "nn/norm/norm.h"
#include "nn/sequential.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "session/trainer.h"
#include "small_runs.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::lab;

namespace {

struct Seen {
  Telemetry telemetry;
  train::TrainResult result;
};

/// A run of three steps with dynamics.
Seen run(const std::string& model, const std::string& norm, bool checkpoints, const DynamicsParts& dynamics) {
  train::Recipe recipe = test::small_recipe(model, {.batch_size = 2, .images = 6, .test_images = 2});
  recipe.norm = norm;
  recipe.small_stem = model == "resnet18";
  recipe.image_size = model == "resnet18" ? 16 : 32;
  recipe.drop_path = 0.2;
  recipe.grad_checkpointing = checkpoints;
  train::TrainerOptions options;
  options.quiet = true;
  const auto recorder = std::make_shared<TelemetryRecorder>(dynamics, PowerIteration{.most_products = 3});
  options.observer = recorder;
  train::Trainer trainer(recipe, options);
  Seen seen{.telemetry = {}, .result = trainer.run()};
  seen.telemetry = recorder->result();
  return seen;
}

constexpr DynamicsParts kParts{.gradients = true, .weights = true, .saturation = true};

/// A bounded norm without a weight of its own.
class Bounded : public nn::Norm {
 public:
  Tensor forward_act(const Tensor& x, const ActOptions& /*then*/) override { return tanh(x); }
  [[nodiscard]] std::string name() const override { return "Bounded"; }
  [[nodiscard]] std::optional<nn::Bend> bend() const override { return nn::Bend{.limit = 1.5}; }
};

}  // namespace

TEST_CASE("telemetry: checkpoints change no number of a layer") {
  for (const auto& [model, norm] :
       {std::pair("resnet18", "batch"), std::pair("convnext_atto", "dyt"), std::pair("vit_tiny", "layer2d")}) {
    CAPTURE(model);
    const Seen plain = run(model, norm, false, kParts);
    const Seen again = run(model, norm, true, kParts);
    CHECK(again.result.losses == plain.result.losses);
    const auto health = [](const Seen& seen) {  // as text, in which numbers that are not known are null
      return nlohmann::json::parse(telemetry_to_json(seen.telemetry)["health"].dump());
    };
    CHECK(health(plain).size() == 2);
    CHECK(nlohmann::json::diff(health(plain), health(again)).dump() == "[]");
    REQUIRE_FALSE(again.telemetry.health.empty());
    const std::vector<LayerHealth>& layers = again.telemetry.health.back().layers;
    CHECK(layers.size() > 20);
    std::set<std::string> names;  // the parts of a ViT's qkv have a row each
    for (const LayerHealth& layer : layers) {
      CHECK_MESSAGE(names.insert(layer.layer).second, layer.layer);
    }
    CHECK(names.contains("blocks.3.attn.qkv (3)") == (model == std::string("vit_tiny")));
    CHECK(std::ranges::all_of(layers, [](const LayerHealth& layer) { return layer.gradient.has_value(); }));
  }
}

TEST_CASE("telemetry: a layer in checkpoints inside of checkpoints is seen once, also a norm without a weight") {
  const auto inner = std::make_shared<nn::Sequential>();
  inner->push_back(std::make_shared<nn::Conv2d>(3, 4, 1));
  inner->push_back(std::make_shared<Bounded>());
  const auto outer = std::make_shared<nn::Sequential>();
  outer->push_back(inner);
  outer->set_grad_checkpointing();
  nn::Sequential model{outer};
  model.set_grad_checkpointing();
  HealthSample found;
  const LayerTable table(model);
  HealthStep step(
      table, 1, [&](HealthSample one) { found = std::move(one); },
      std::make_unique<DynamicsReader>(table, kParts, /* optimizer= */ nullptr));
  const Tensor y = model(randn({2, 3, 4, 5}));
  const Tensor loss = sum(mul(y, y));
  step.after_forward(loss, /* grad_scale= */ 1);
  loss.backward();
  step.after_backward();
  step.after_update();
  std::vector<std::string> layers;
  for (const LayerHealth& layer : found.layers) {
    layers.push_back(layer.layer);
    CHECK(layer.gradient.has_value());
  }
  CHECK(layers == std::vector<std::string>{"0.0.0", "0.0.1"});
  REQUIRE(found.dynamics);
  layers.clear();
  for (const LayerDynamics& layer : found.dynamics->layers) {
    layers.push_back(layer.layer);
  }
  CHECK(layers == std::vector<std::string>{"0.0.0", "0.0.1"});
}

TEST_CASE("telemetry: with checkpoints a timed step has the time of both passes, and the memory of the inputs") {
  const Seen plain = run("resnet18", "batch", false, {});
  const Seen again = run("resnet18", "batch", true, {});
  CHECK(again.telemetry.saved_bytes() < plain.telemetry.saved_bytes() / 2);
  CHECK(std::ranges::any_of(again.telemetry.saved, [](const SavedBytes& one) { return one.layer == "layer2.1"; }));
  CHECK(again.telemetry.ledger.empty());
  const StepTime& time = again.telemetry.step_time;
  REQUIRE(time.samples > 0);
  REQUIRE(time.backward_split);
  CHECK(time.backward_split->convolution > 0);
  CHECK(time.backward_split->norm > 0);
  CHECK(time.backward_split->rest < time.backward / 2);
}

TEST_CASE("telemetry: the sharpness of a network with checkpoints is that of the network") {
  DynamicsParts parts;
  parts.sharpness = true;
  const Seen plain = run("resnet18", "batch", false, parts);
  const Seen again = run("resnet18", "batch", true, parts);
  REQUIRE(plain.telemetry.health.size() == again.telemetry.health.size());
  REQUIRE_FALSE(plain.telemetry.health.empty());
  for (size_t i = 0; i < plain.telemetry.health.size(); ++i) {
    const auto& expected = plain.telemetry.health[i].dynamics;
    const auto& found = again.telemetry.health[i].dynamics;
    REQUIRE((expected && expected->sharpness && found && found->sharpness));
    CHECK(found->sharpness->problem.empty());
    CHECK(found->sharpness->value == doctest::Approx(expected->sharpness->value).epsilon(1e-3));
  }
  CHECK(again.result.losses == plain.result.losses);
}

#include "lab/telemetry/telemetry.h"
#include "core/copy.h"
#include "core/device.h"
#include "core/factory.h"
#include "core/tape.h"
#include "error_text.h"
#include "lab/telemetry/layer_log.h"
#include "lab/telemetry/recorder.h"
#include "lab/telemetry/timed_step.h"
#include "models/vit.h"
#include "nn/conv.h"
#include "nn/norm/batch_norm.h"
#include "nn/norm/factory.h"
#include "nn/norm/norm.h"
#include "nn/sequential.h"
#include "ops/loss/loss.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "session/trainer.h"
#include "small_runs.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::lab;

namespace {

train::Recipe short_recipe(const std::string& model, const std::string& norm, int64_t steps) {
  train::Recipe recipe = test::small_recipe(model, {.batch_size = 2, .images = 2 * steps, .test_images = 2});
  recipe.norm = norm;
  recipe.small_stem = model == "resnet18";
  return recipe;
}

/// What a run leaves, none of it in memory that counts for the next one's peak.
struct Outcome {
  train::TrainResult result;
  std::vector<float> state;
};

Outcome outcome_of(const train::Recipe& recipe, const std::shared_ptr<TelemetryRecorder>& recorder) {
  train::TrainerOptions options;
  options.quiet = true;
  options.observer = recorder;
  train::Trainer trainer(recipe, options);
  Outcome outcome{.result = trainer.run(), .state = {}};
  const train::Checkpoint checkpoint = trainer.checkpoint();
  for (const auto* part : {&checkpoint.model, &checkpoint.optimizer}) {
    for (const auto& [name, x] : *part) {
      const std::vector<float> values = x.to_vector<float>();
      outcome.state.insert(outcome.state.end(), values.begin(), values.end());
    }
  }
  return outcome;
}

Telemetry telemetry_of(const train::Recipe& recipe) {
  train::TrainerOptions options;
  options.quiet = true;
  const auto recorder = std::make_shared<TelemetryRecorder>();
  options.observer = recorder;
  train::Trainer(recipe, options).run();
  return recorder->result();
}

/// A network in one step that is timed, and in one whose numbers are looked at.
StepFindings timed(nn::Module& model, const Tensor& x, const TensorFunction& loss) {
  StepFindings found;
  const LayerTable table(model);
  TimedStep step(table, [&](StepFindings one) { found = std::move(one); });
  const Tensor value = loss({model(x)})[0];
  step.after_forward(value, 1);
  value.backward();
  step.after_backward();
  step.after_update();
  return found;
}

/// A layer norm over the channels as permute, layer norm, permute: it copies its input, and turns what it returns back.
class Permuting : public nn::Module {
 public:
  explicit Permuting(int64_t channels) : norm_(register_module("inner", std::make_shared<nn::LayerNorm2d>(channels))) {}
  Tensor forward(const Tensor& x) override {
    const MemoryFormat other = x.suggest_memory_format() == MemoryFormat::channels_last ? MemoryFormat::contiguous
                                                                                        : MemoryFormat::channels_last;
    return norma::to((*norm_)(norma::contiguous(x, other)), x.suggest_memory_format());
  }
  [[nodiscard]] std::string name() const override { return "Permuting"; }

 private:
  std::shared_ptr<nn::LayerNorm2d> norm_;
};

/// A norm that is no nn::Norm, with a weight that broadcasts over images.
class Scaling : public nn::Module {
 public:
  explicit Scaling(int64_t channels) : weight_(register_parameter("weight", ones({1, channels, 1, 1}))) {}
  Tensor forward(const Tensor& x) override { return x * weight_; }
  [[nodiscard]] std::string name() const override { return "Scaling"; }

 private:
  Tensor weight_;
};

class WithSlot : public nn::Module {
 public:
  WithSlot() : norm_(register_slot("norm", std::make_shared<Scaling>(3))) {}
  Tensor forward(const Tensor& x) override { return (*norm_)(x); }
  [[nodiscard]] std::string name() const override { return "WithSlot"; }

 private:
  nn::ChildSlot norm_;
};

}  // namespace

TEST_CASE("telemetry: a norm of one's own is one by its place, also with a weight of four axes") {
  WithSlot model;
  const LayerTable table(model);
  CHECK(table.layers().front().name == "norm");
  CHECK(table.layers().front().kind == LayerKind::norm);
}

TEST_CASE("telemetry: the schedule knows only the number of steps, and looks at few of them") {
  for (const int64_t total : {1, 2, 3, 10, 49, 50, 100, 199, 200, 1000, 123'457}) {
    CAPTURE(total);
    const TelemetrySchedule schedule(total);
    CHECK(schedule.timed().size() >= 1);
    CHECK(static_cast<int64_t>(schedule.timed().size()) <= std::min<int64_t>(16, 1 + total / 50));
    CHECK(static_cast<int64_t>(schedule.health().size()) <= std::min<int64_t>(3, 1 + total / 50));
    CHECK(schedule.is_for_health(total) == (total > 1));
    for (const int64_t step : schedule.timed()) {
      CHECK(step >= 1);
      CHECK(step <= total);
      CHECK(!schedule.is_for_health(step));
    }
  }
  CHECK(TelemetrySchedule(400).timed() == std::set<int64_t>{22, 66, 111, 155, 200, 244, 288, 333, 377});
  CHECK(TelemetrySchedule(400).health() == std::set<int64_t>{133, 266, 400});
}

TEST_CASE("telemetry: what two layers save, counted by hand") {
  nn::Sequential model{std::make_shared<nn::Conv2d>(2, 3, 1, nn::Conv2dOptions{.bias = false}),
                       std::make_shared<nn::Conv2d>(3, 5, 1, nn::Conv2dOptions{.bias = false})};
  const Tensor x = randn({4, 2, 7, 6});
  const auto loss = [](const Tensors& y) -> Tensors { return {sum(y[0] * y[0])}; };
  const StepFindings found = timed(model, x, loss);
  const int64_t pixels = 4 * 7 * 6 * static_cast<int64_t>(sizeof(float));
  REQUIRE(found.saved.size() == 3);
  CHECK(found.saved[0].layer == "0");  // its input
  CHECK(found.saved[0].kind == LayerKind::convolution);
  CHECK(found.saved[0].bytes == 2 * pixels);
  CHECK(found.saved[1].layer == "1");
  CHECK(found.saved[1].bytes == 3 * pixels);
  CHECK(found.saved[2].layer.empty());  // y * y keeps y, once
  CHECK(found.saved[2].bytes == 5 * pixels);
}

TEST_CASE("telemetry: a timed step finds the same on a device whose memory the host cannot read") {
  for (const Device device : {kCpu, kCudaEmulated}) {
    const DefaultDeviceGuard guard(device);
    nn::Sequential model{std::make_shared<nn::Conv2d>(2, 3, 1, nn::Conv2dOptions{.bias = false}),
                         std::make_shared<nn::BatchNorm2d>(3)};
    const auto loss = [](const Tensors& y) -> Tensors { return {sum(y[0] * y[0] * y[0])}; };
    const StepFindings found = timed(model, randn({4, 2, 5, 6}), loss);
    CHECK(found.ledger.empty());
    CHECK(found.saved.size() == 3);
  }
}

TEST_CASE("telemetry: the bytes of all layers are those of the tape, and what a storage holds twice counts once") {
  const train::Recipe recipe = short_recipe("convnext_atto", "layer2d", 1);
  const auto model = train::make_model(recipe, 10);
  const Tensor x = copy_of(randn({2, 3, 32, 32}), MemoryFormat::channels_last);
  const LayerTable table(*model);
  const LayerLog log(table, nullptr);
  const Tensor loss = cross_entropy((*model)(x), arange(2));
  const Tape tape(loss);
  Telemetry telemetry;
  telemetry.saved = saved_by_layer(tape, table, log);
  CHECK(telemetry.saved_bytes() == static_cast<int64_t>(tape.saved_bytes()));
  CHECK(telemetry.saved.size() > 20);
  const auto named = [&](const std::string& name) {
    return std::find_if(telemetry.saved.begin(), telemetry.saved.end(),
                        [&](const SavedBytes& one) { return one.layer == name; }) != telemetry.saved.end();
  };
  CHECK(named("stages.0.blocks.1.norm"));
  CHECK(named("stages.0.blocks.1.mlp.fc1"));
  CHECK(named("stages.3.blocks.0.conv_dw"));
}

TEST_CASE("telemetry: the norms and blocks of a vit copy nothing, whatever the norm") {
  for (const std::string norm : {"layer2d", "rms2d", "batch", "group:4", "instance", "grn", "dyt", "none"}) {
    for (const std::string pool : {"token", "avg"}) {
      for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
        CAPTURE(norm);
        CAPTURE(pool);
        models::VisionTransformer model("vit", {.width = 24, .heads = 3, .depth = 2},
                                        {.num_classes = 5,
                                         .norm = norm,
                                         .patch_size = 4,
                                         .layer_scale = 0.5,
                                         .image_size = 16,
                                         .global_pool = pool,
                                         .qk_norm = norm});
        model.to(format);
        const auto loss = [](const Tensors& y) -> Tensors { return {cross_entropy(y[0], arange(3))}; };
        const StepFindings found = timed(model, copy_of(randn({3, 3, 16, 16}), format), loss);
        std::string copies;
        for (const LayoutCopy& copy : found.ledger) {
          // Room for the class token is made once, and what the classifier gets is a part of the tokens.
          if (copy.layer.empty() && (copy.op == "pad" || copy.op == "select" || copy.op == "slice")) {
            continue;
          }
          if (copy.layer == "patch_embed.proj" && format == MemoryFormat::contiguous) {
            continue;  // the gradient of the patches is turned into the format of the images
          }
          copies += fmt::format("{} {} {}: {} to {}\n", to_string(copy.pass), copy.layer, copy.op, copy.from, copy.to);
        }
        CHECK_MESSAGE(copies.empty(), copies);
      }
    }
  }
}

TEST_CASE("telemetry: training has the same bits with it and without") {
  for (const std::string model : {"convnext_atto", "resnet18"}) {
    CAPTURE(model);
    train::Recipe recipe = short_recipe(model, "batch", 2);
    recipe.drop_path = 0.2;
    recipe.clip_grad = 1;
    const auto recorder = std::make_shared<TelemetryRecorder>();
    const Outcome without = outcome_of(recipe, nullptr);
    const Outcome with = outcome_of(recipe, recorder);
    CHECK(recorder->result().health.size() == 1);
    CHECK(recorder->result().step_time.samples == 1);
    CHECK(with.result.losses == without.result.losses);
    // The loader may be some batches of 24 kB ahead or not.
    CHECK(static_cast<double>(with.result.peak_bytes) ==
          doctest::Approx(static_cast<double>(without.result.peak_bytes)).epsilon(0.01));
    CHECK((with.state == without.state));
  }
}

TEST_CASE("telemetry: training has the same bits with dynamics and without" * doctest::test_suite("again")) {
  const DynamicsParts all = parse_dynamics("test", "all");
  using Case = std::tuple<std::string, std::string, std::string>;
  for (const auto& [model, norm, precision] :
       {Case("resnet18", "batch", "float32"), Case("convnext_atto", "dyt", "amp_bfloat16")}) {
    CAPTURE(model);
    train::Recipe recipe = short_recipe(model, norm, 3);
    recipe.precision = precision;
    recipe.drop_path = 0.2;
    recipe.mixup = 0.2;
    if (model == "resnet18") {
      recipe.image_size = 16;  // for time
    }
    recipe.clip_grad = 1e-5;  // far below the gradients
    const auto recorder = std::make_shared<TelemetryRecorder>(all, PowerIteration{.most_products = 4});
    const Outcome without = outcome_of(recipe, nullptr);
    const Outcome with = outcome_of(recipe, recorder);
    CHECK(with.result.losses == without.result.losses);
    // It is that of the steps behind the last sharpness, not of the sharpness, which takes three times as much.
    CHECK(static_cast<double>(with.result.peak_bytes) ==
          doctest::Approx(static_cast<double>(without.result.peak_bytes)).epsilon(0.05));
    CHECK((with.state == without.state));
    const std::vector<HealthSample> samples = recorder->result().health;
    REQUIRE(samples.size() == 2);
    CHECK(samples[0].step == 1);
    CHECK(samples[1].step == 3);
    for (const HealthSample& sample : samples) {
      REQUIRE(sample.dynamics);
      REQUIRE(sample.dynamics->sharpness);
      CHECK(sample.dynamics->sharpness->problem.empty());
      CHECK(std::isfinite(sample.dynamics->sharpness->value));
      CHECK(sample.dynamics->lr > 0);
      int64_t layers = 0;
      double squares = 0;
      for (const LayerDynamics& layer : sample.dynamics->layers) {
        layers += layer.kind == LayerKind::convolution || layer.kind == LayerKind::linear ? 1 : 0;
        CHECK(layer.gradient_norm > 0);
        squares += layer.gradient_norm * layer.gradient_norm;
        CHECK(layer.weight_norm > 0);
        const bool is_bounded = layer.kind == LayerKind::norm && norm == "dyt";
        CHECK(std::isnan(layer.saturation) != is_bounded);
        // Every convolution of ResNet has batch norm behind it.
        CHECK(std::isnan(layer.effective_lr) == (layer.kind != LayerKind::convolution || norm == "dyt"));
      }
      CHECK(layers > 15);
      CHECK(std::sqrt(squares) > 100 * recipe.clip_grad);  // not clipped
    }
  }
}

TEST_CASE("telemetry: a step that float16 leaves out is looked at again, and its gradients are not scaled") {
  train::Recipe recipe = short_recipe("resnet18", "batch", 6);
  recipe.precision = "amp_float16";
  recipe.image_size = 16;  // for time
  const auto recorder = std::make_shared<TelemetryRecorder>(DynamicsParts{.gradients = true});
  outcome_of(recipe, recorder);
  const std::vector<HealthSample> coarse = recorder->result().health;
  REQUIRE(!coarse.empty());
  recipe.precision = "float32";
  const auto exact = std::make_shared<TelemetryRecorder>(DynamicsParts{.gradients = true});
  outcome_of(recipe, exact);
  const std::vector<HealthSample> fine = exact->result().health;
  REQUIRE(!fine.empty());
  CHECK(coarse.front().step > fine.front().step);  // the first scale is too large for the first step
  const LayerDynamics& last = coarse.front().dynamics->layers.back();
  const LayerDynamics& expected = fine.front().dynamics->layers.back();
  CHECK(last.layer == "fc");
  CHECK(last.gradient_norm > expected.gradient_norm / 4);  // not 65536 times as large
  CHECK(last.gradient_norm < expected.gradient_norm * 4);
}

TEST_CASE("telemetry: a sample that a step left out is still due after resuming") {
  nn::Sequential model{std::make_shared<nn::Conv2d>(3, 4, 1)};
  const train::ObservedRun run{.model = model, .first_step = 0, .total_steps = 40, .batch_size = 1};
  const DynamicsParts parts{.gradients = true};
  TelemetryRecorder before(parts);
  before.start(run);
  CHECK(before.begin_step(1) != nullptr);  // gives no sample, as where gradients overflow
  nlohmann::json state = nlohmann::json::parse(before.state().dump());
  TelemetryRecorder after(parts);
  after.resume(state, "here");
  after.start(run);
  CHECK(after.begin_step(2) != nullptr);
  state.erase("is_due");  // as of an earlier version
  state.erase("sharpness_is_due");
  TelemetryRecorder earlier(parts);
  earlier.resume(state, "here");
  earlier.start(run);
  CHECK(earlier.begin_step(2) == nullptr);
}

TEST_CASE("telemetry: of a step with several batches the last one is looked at") {
  train::Recipe recipe = short_recipe("resnet18", "batch", 4);
  const auto layers_of = [&] {
    const auto recorder = std::make_shared<TelemetryRecorder>();
    outcome_of(recipe, recorder);
    REQUIRE(!recorder->result().health.empty());
    return recorder->result().health.front().layers;
  };
  const auto one = layers_of();
  recipe.grad_accum_steps = 2;
  const auto two = layers_of();
  REQUIRE(two.size() == one.size());
  for (size_t i = 0; i < one.size(); ++i) {
    CHECK(two[i].layer == one[i].layer);
    CHECK(two[i].gradient.has_value() == one[i].gradient.has_value());
  }
}

TEST_CASE("telemetry: the record of a run") {
  const train::Recipe recipe = short_recipe("resnet18", "batch", 3);
  const auto recorder = std::make_shared<TelemetryRecorder>();
  const Outcome run = outcome_of(recipe, recorder);
  const Telemetry telemetry = recorder->result();
  REQUIRE(telemetry.losses.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(telemetry.losses[i].step == static_cast<int64_t>(i) + 1);
    CHECK(telemetry.losses[i].loss == run.result.losses[i]);
    CHECK(telemetry.losses[i].seconds > (i == 0 ? 0 : telemetry.losses[i - 1].seconds));
  }
  REQUIRE(telemetry.tests.size() == 1);
  CHECK(telemetry.tests[0].step == 3);
  CHECK(telemetry.tests[0].accuracy == run.result.test.accuracy);
  CHECK(telemetry.tests[0].loss == run.result.test.loss);
  CHECK(telemetry.tests[0].seconds > telemetry.losses[2].seconds);
  CHECK(telemetry.throughput.steps == 3);  // no others remain
  CHECK(telemetry.throughput.min > 0);
  CHECK(telemetry.throughput.min <= telemetry.throughput.median);
  CHECK(telemetry.throughput.median <= telemetry.throughput.max);
  const StepTime& time = telemetry.step_time;
  REQUIRE(time.forward_split);
  CHECK(time.forward_split->total() == doctest::Approx(time.forward));
  CHECK(time.backward_split->total() == doctest::Approx(time.backward));
  for (const PassTime& pass : {*time.forward_split, *time.backward_split}) {
    CHECK(pass.norm > 0);
    CHECK(pass.convolution > 0);
    CHECK(pass.product > 0);  // of the last layer
    CHECK(pass.rest > 0);
  }
  CHECK(time.optimizer > 0);
}

TEST_CASE("telemetry: a long run's loss curve has few points, each the mean of its steps") {
  nn::Sequential model{std::make_shared<nn::Conv2d>(1, 1, 1)};
  TelemetryRecorder recorder;
  recorder.start({.model = model, .first_step = 0, .total_steps = 1001, .batch_size = 4});
  for (int64_t step = 1; step <= 1001; ++step) {
    recorder.end_step(step, static_cast<double>(step), 0.5);
  }
  const Telemetry telemetry = recorder.result();
  REQUIRE(telemetry.losses.size() == 251);
  CHECK(telemetry.losses[0].step == 4);
  CHECK(telemetry.losses[0].loss == 2.5);
  CHECK(telemetry.losses[250].step == 1001);
  CHECK(telemetry.losses[250].loss == 1001);
  CHECK(telemetry.throughput.median == 8);
  CHECK(telemetry.throughput.steps == 1001 - 5 - 16 - 3);
}

TEST_CASE("telemetry: a step that is looked at in the place of one before does not count in the throughput") {
  nn::Sequential model{std::make_shared<nn::Conv2d>(1, 1, 1)};
  TelemetryRecorder recorder(DynamicsParts{.gradients = true});
  recorder.start({.model = model, .first_step = 0, .total_steps = 100, .batch_size = 4});
  REQUIRE(TelemetrySchedule(100, /* dynamics= */ true).is_for_health(33));
  for (int64_t step = 1; step <= 100; ++step) {
    const std::unique_ptr<train::ObservedStep> observed = recorder.begin_step(step);
    if (step == 33) {  // it is left out: nobody calls end_step()
      continue;
    }
    CHECK((step != 34 || observed != nullptr));
    if (observed) {
      observed->after_update();
    }
    recorder.end_step(step, 1, step == 34 ? 100 : 0.5);
  }
  CHECK(recorder.result().health.size() == 4);
  CHECK(recorder.result().throughput.min == 8);
}

TEST_CASE("telemetry: a long run that ends at its beginning keeps the losses that it had") {
  nn::Sequential model;
  TelemetryRecorder recorder;
  recorder.start({.model = model, .first_step = 0, .total_steps = 2000, .batch_size = 4});
  for (const int64_t step : {1, 2, 3}) {
    recorder.end_step(step, 2.0 * static_cast<double>(step), 0.5);
  }
  const Telemetry telemetry = recorder.result();
  REQUIRE(telemetry.losses.size() == 1);
  CHECK(telemetry.losses[0].step == 3);
  CHECK(telemetry.losses[0].loss == 4);
}

TEST_CASE("telemetry: our own networks make no layout copy, in either format") {
  for (const std::string model : {"resnet18", "convnext_atto"}) {
    for (const std::string norm : {"batch", "layer2d", "group"}) {
      for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
        train::Recipe recipe = short_recipe(model, norm, 1);
        recipe.channels_last = format == MemoryFormat::channels_last;
        recipe.image_size = 16;
        if (recipe.patch_size) {
          recipe.patch_size = 2;
        }
        const auto network = train::make_model(recipe, 10);
        const StepFindings found =
            timed(*network, copy_of(randn({2, 3, 16, 16}), format),
                  [](const Tensors& logits) -> Tensors { return {cross_entropy(logits[0], arange(2))}; });
        CHECK(found.saved.size() > 20);
        CHECK_MESSAGE(found.ledger.empty(), model, " with ", norm, ": ", found.ledger.size(), " copies, one by ",
                      found.ledger.empty() ? "" : found.ledger[0].layer + " " + found.ledger[0].op);
      }
    }
  }
}

TEST_CASE("telemetry: a norm that copies is in the ledger with its name, op, formats and bytes") {
  nn::register_norm("permuting", [](int64_t channels) { return std::make_shared<Permuting>(channels); });
  train::Recipe recipe = short_recipe("resnet18", "permuting", 1);
  recipe.channels_last = true;
  const Telemetry telemetry = telemetry_of(recipe);
  REQUIRE(telemetry.ledger.size() == 4 * 20);
  const auto line = [&](const std::string& layer, const std::string& op, OpPass pass) {
    const auto found = std::find_if(telemetry.ledger.begin(), telemetry.ledger.end(), [&](const LayoutCopy& one) {
      return one.layer == layer && one.op == op && one.pass == pass;
    });
    REQUIRE(found != telemetry.ledger.end());
    return *found;
  };
  // (2, 64, 32, 32) of float32, read and written.
  const int64_t bytes = 2 * 2 * 64 * 32 * 32 * 4;
  for (const OpPass pass : {OpPass::forward, OpPass::backward}) {
    const bool forward = pass == OpPass::forward;
    const LayoutCopy there = line("layer1.0.bn2", "contiguous", pass);
    CHECK(there.from == (forward ? "channels_last" : "contiguous"));
    CHECK(there.to == (forward ? "contiguous" : "channels_last"));
    CHECK(there.count == 1);
    CHECK(there.bytes == bytes);
    const LayoutCopy back = line("layer1.0.bn2", "to", pass);
    CHECK(back.from == (forward ? "contiguous" : "channels_last"));
    CHECK(back.to == (forward ? "channels_last" : "contiguous"));
    CHECK(back.bytes == bytes);
  }
  CHECK(std::all_of(telemetry.ledger.begin(), telemetry.ledger.end(), [](const LayoutCopy& one) {
    return one.layer.find("bn") != std::string::npos || one.layer.ends_with("downsample.1");
  }));
}

TEST_CASE("telemetry: JSON and back") {
  Telemetry telemetry = telemetry_of(short_recipe("convnext_atto", "batch", 2));
  telemetry.ledger = {{.op = "to",
                       .layer = "stem.1",
                       .pass = OpPass::backward,
                       .from = "contiguous",
                       .to = "channels_last",
                       .count = 2,
                       .bytes = 4096}};
  REQUIRE(telemetry.health.size() == 1);
  telemetry.health[0].layers[0].output = {.mean = NAN, .deviation = NAN, .largest = NAN, .non_finite = 3};
  telemetry.health[0].layers[1].gradient.reset();
  telemetry.health[0].attention = {{.layer = "blocks.0.attn", .head = 0, .largest_logit = 3, .entropy = 0.5},
                                   {.layer = "blocks.0.attn", .head = 1, .largest_logit = 12.5}};
  telemetry.health[0].dynamics = DynamicsSample{
      .lr = 0.125,
      .layers = {{.layer = "stem.0", .kind = LayerKind::convolution, .gradient_norm = 2, .weight_norm = 4},
                 {.layer = "stem.1", .kind = LayerKind::norm, .saturation = 0.25}},
      .sharpness = Sharpness{.value = 12.5, .change = 0.01, .products = 7, .seconds = 1.5}};
  const auto json = telemetry_to_json(telemetry);
  const Telemetry found = telemetry_from_json(nlohmann::json(json), "here");
  CHECK((telemetry_to_json(found).dump() == json.dump()));
  CHECK(found.ledger[0].pass == OpPass::backward);
  CHECK(found.ledger[0].bytes == 4096);
  CHECK(std::isnan(found.health[0].layers[0].output.mean));
  CHECK(found.health[0].layers[0].output.non_finite == 3);
  CHECK_FALSE(found.health[0].layers[1].gradient);
  CHECK(found.health[0].layers[1].gap);
  CHECK(found.health[0].layers[1].gap->mean == doctest::Approx(telemetry.health[0].layers[1].gap->mean).epsilon(1e-3));
  CHECK_FALSE(found.health[0].layers[0].gap);
  CHECK(found.saved_bytes() == telemetry.saved_bytes());
  REQUIRE(found.health[0].attention.size() == 2);
  CHECK(found.health[0].attention[1].layer == "blocks.0.attn");
  CHECK(found.health[0].attention[1].head == 1);
  CHECK(found.health[0].attention[1].largest_logit == 12.5);
  CHECK(std::isnan(found.health[0].attention[1].entropy));
  REQUIRE(found.health[0].dynamics);
  const DynamicsSample& dynamics = *found.health[0].dynamics;
  CHECK(dynamics.lr == 0.125);
  REQUIRE(dynamics.layers.size() == 2);
  CHECK(dynamics.layers[0].layer == "stem.0");
  CHECK(dynamics.layers[0].gradient_norm == 2);
  CHECK(dynamics.layers[0].weight_norm == 4);
  CHECK(std::isnan(dynamics.layers[0].effective_lr));
  CHECK(dynamics.layers[1].saturation == 0.25);
  REQUIRE(dynamics.sharpness);
  CHECK(dynamics.sharpness->value == 12.5);
  CHECK(dynamics.sharpness->change == 0.01);
  CHECK(dynamics.sharpness->products == 7);
  CHECK(dynamics.sharpness->seconds == 1.5);

  const auto error_after = [&](auto&& change) {
    nlohmann::json broken = json;
    change(broken);
    return test::error_of([&] { telemetry_from_json(broken, "here"); });
  };
  CHECK(error_after([](auto& j) { j.erase("saved"); }) == "here: saved: missing");
  nlohmann::json earlier = json;  // of a version that did not look at inputs
  earlier["health"][0]["layers"].erase("input_deviation");
  CHECK(std::isnan(telemetry_from_json(earlier, "here").health[0].layers[0].input_deviation));
  CHECK(error_after([](auto& j) { j["health"][0]["layers"]["input_deviation"].erase(0); }) ==
        "here: health 1: input_deviation: expected 58 values, got 57");
  CHECK(error_after([](auto& j) { j["saved"]["kind"][0] = "layer"; }) ==
        "here: saved: kind: expected one of those that are known, got 'layer'");
  CHECK(error_after([](auto& j) { j["losses"]["loss"].erase(0); }) == "here: losses: loss: expected 2 values, got 1");
  CHECK(error_after([](auto& j) { j["tests"]["step"][0] = 1.5; }) ==
        "here: tests: step: expected a whole number, got 1.5");
  CHECK(error_after([](auto& j) { j["saved"]["bytes"][0] = int64_t{1} << 60; }) ==
        "here: saved: bytes: expected a whole number from -1 to 35184372088832, got 1152921504606846976");
  CHECK(error_after([](auto& j) { j["health"][0].erase("step"); }) == "here: health 1: step: missing");
  CHECK(error_after([](auto& j) { j["health"][0]["attention"]["head"][0] = "first"; }) ==
        "here: health 1: attention: head: expected a whole number, got \"first\"");
  CHECK(error_after([](auto& j) { j["health"][0]["dynamics"].erase("lr"); }) ==
        "here: health 1: dynamics: lr: missing");
  CHECK(error_after([](auto& j) { j["health"][0]["dynamics"] = 3; }) == "here: health 1: dynamics: lr: missing");
  CHECK(error_after([](auto& j) { j["health"][0]["dynamics"]["layers"]["saturation"].erase(0); }) ==
        "here: health 1: dynamics: saturation: expected 2 values, got 1");
  CHECK(error_after([](auto& j) { j["health"][0]["dynamics"]["sharpness"]["products"] = "many"; }) ==
        "here: health 1: dynamics: sharpness: products: expected a whole number, got \"many\"");
}

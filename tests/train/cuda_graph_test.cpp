#include "core/copy.h"
#include "core/factory.h"
#include "core/random.h"
#include "cuda_devices.h"
#include "models/registry.h"
#include "nn/conv.h"
#include "nn/layers.h"
#include "nn/norm/factory.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "session/trainer.h"
#include "support.h"
#include "train/two_classes.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

// A run whose steps are launched as one graph has the bits of one without: on a GPU, or on the virtual one.

using namespace norma;
using namespace norma::train;
using test::devices_with_graphs;
using test::error_of;

// The plug-in examples/my_norm/taper.cpp, which is compiled into this program, too.
extern "C" void norma_register_plugin();

namespace {

/// Images of noise, of which number 17 has a pixel that is brighter than all others.
class OneBright final : public test::TwoClasses {
 public:
  OneBright() : TwoClasses("graph_images", 24, 8) {}
  int64_t load(int64_t index, data::Image& image) const override {
    image.set_size(info().height, info().width, info().channels);
    Generator generator(static_cast<uint64_t>(index));
    for (uint8_t& pixel : image.pixels) {
      pixel = static_cast<uint8_t>(generator.below(200));
    }
    image.pixels[0] = index == 17 ? 255 : 0;
    return index % 2;
  }
};

/// Convolution, batch norm, a branch with drop path, dropout, classifier. In training a bright pixel makes the logits
/// NaN.
class SmallNet : public nn::Module {
 public:
  explicit SmallNet(const models::ModelOptions& options) {
    stem_ = register_module("stem", std::make_shared<nn::Conv2d>(options.in_channels, 8, Pair{3, 3}));
    norm_ = register_module("norm", nn::make_norm(options.norm, 8));
    branch_ = register_module("branch", std::make_shared<nn::Conv2d>(8, 8, Pair{1, 1}));
    drop_path_ = register_module("drop_path", std::make_shared<nn::DropPath>(0.3));
    dropout_ = register_module("dropout", std::make_shared<nn::Dropout>(0.4));
    head_ = register_module("head", std::make_shared<nn::Linear>(8, options.num_classes));
    Generator generator(options.seed);
    for (const auto& [path, x] : named_parameters()) {
      if (!path.starts_with("norm.")) {
        uniform_(x.detach(), -0.3, 0.3, generator);
      }
    }
  }
  [[nodiscard]] std::string name() const override { return "SmallNet"; }
  Tensor forward(const Tensor& x) override {
    const double limit = is_training() ? 1.5 : 1000;
    const Tensor spoiled = mul(sqrt(neg(mean(relu(add(x.detach(), -limit))))), 0);
    Tensor y = relu((*norm_)((*stem_)(x)));
    y = add(y, (*drop_path_)((*branch_)(y)));
    const Tensor logits = (*head_)(mean((*dropout_)(y), {2, 3}));
    return add(logits, spoiled);
  }

 private:
  std::shared_ptr<nn::Conv2d> stem_;
  std::shared_ptr<nn::Module> norm_;
  std::shared_ptr<nn::Conv2d> branch_;
  std::shared_ptr<nn::DropPath> drop_path_;
  std::shared_ptr<nn::Dropout> dropout_;
  std::shared_ptr<nn::Linear> head_;
};

Recipe graph_recipe() {
  static const bool known = [] {
    models::register_model(
        "graph_net", {.make = [](const models::ModelOptions& options) { return std::make_shared<SmallNet>(options); }});
    data::register_dataset("graph_images", "a test's",
                           [](const data::DatasetOptions&) { return std::make_shared<OneBright>(); });
    return true;
  }();
  REQUIRE(known);
  Recipe recipe;
  recipe.model = "graph_net";
  recipe.dataset = "graph_images";
  recipe.image_size = 8;
  recipe.batch_size = 4;
  recipe.epochs = 2;  // 12 steps, with an evaluation between
  recipe.lr = 0.02;
  recipe.skip_nonfinite = true;
  return recipe;
}

/// What a run leaves behind.
struct Outcome {
  TrainResult result;
  Checkpoint checkpoint;
};

Outcome outcome_of(const Recipe& recipe, GraphMode mode) {
  Trainer trainer(recipe, {.workers = 0, .cuda_graph = mode, .quiet = true});
  Outcome outcome;
  outcome.result = trainer.run();
  outcome.checkpoint = trainer.checkpoint();
  return outcome;
}

/// The names of the tensors that differ in a bit.
std::string differences_of(const nn::NamedTensors& a, const nn::NamedTensors& b) {
  std::string names = a.size() == b.size() ? "" : "counts";
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const Tensor x = contiguous_copy(to_device(a[i].second.detach(), kCpu));
    const Tensor y = contiguous_copy(to_device(b[i].second.detach(), kCpu));
    const bool same = a[i].first == b[i].first && x.sizes() == y.sizes() && x.dtype() == y.dtype() &&
                      std::memcmp(x.raw_data(), y.raw_data(), static_cast<size_t>(x.numel()) * size_of(x.dtype())) == 0;
    names += same ? "" : " " + a[i].first;
  }
  return names;
}

void check_same(const Recipe& recipe) {
  CAPTURE(recipe.opt);
  CAPTURE(recipe.precision);
  const Outcome expected = outcome_of(recipe, GraphMode::off);
  const Outcome found = outcome_of(recipe, GraphMode::on);
  REQUIRE(found.result.losses.size() == expected.result.losses.size());
  CHECK(expected.result.graph_steps == 0);
  CHECK(found.result.graph_steps > 0);
  for (size_t i = 0; i < found.result.losses.size(); ++i) {
    CAPTURE(i);
    const double loss = expected.result.losses[i];
    CHECK((found.result.losses[i] == loss || (std::isnan(loss) && std::isnan(found.result.losses[i]))));
  }
  CHECK(found.result.left_out == expected.result.left_out);
  CHECK(found.result.test.loss == expected.result.test.loss);
  CHECK(differences_of(found.checkpoint.model, expected.checkpoint.model) == "");
  CHECK(differences_of(found.checkpoint.optimizer, expected.checkpoint.optimizer) == "");
  CHECK(differences_of(found.checkpoint.ema, expected.checkpoint.ema) == "");
  CHECK(found.checkpoint.generator_offset == expected.checkpoint.generator_offset);
}

}  // namespace

TEST_CASE("cuda graph: a run on a device without graphs says so where one is asked for, and else goes on without") {
  const DefaultDeviceGuard guard(kCpu);
  Recipe recipe = graph_recipe();
  recipe.epochs = 1;
  CHECK(error_of([&] { outcome_of(recipe, GraphMode::on); }) ==
        "train: cuda-graph: expected steps that become a graph, but cpu has no graphs");
  CHECK(differences_of(outcome_of(recipe, GraphMode::automatic).checkpoint.model,
                       outcome_of(recipe, GraphMode::off).checkpoint.model) == "");
  CHECK(error_of([] { graph_mode_from_string("an"); }) == "train: cuda-graph: unknown mode 'an'; did you mean 'on'?");
}

TEST_CASE(
    "cuda graph: steps have the same bits with it: schedules, random numbers, averages, a step that is left out") {
  for (const Device device : devices_with_graphs()) {
    const DefaultDeviceGuard guard(device);
    Recipe recipe = graph_recipe();
    recipe.opt = "nesterov";
    recipe.sched = "onecycle";  // moves rate and momentum
    recipe.model_ema = true;
    recipe.model_ema_decay = 0.9;
    recipe.model_ema_warmup = true;
    recipe.clip_grad = 0.5;
    check_same(recipe);
    REQUIRE(outcome_of(recipe, GraphMode::on).result.left_out == 2);  // once in each epoch
  }
}

TEST_CASE("cuda graph: steps have the same bits with it: mixed precision, accumulation, other optimizers") {
  for (const Device device : devices_with_graphs()) {
    const DefaultDeviceGuard guard(device);
    Recipe recipe = graph_recipe();
    recipe.precision = "amp_bfloat16";
    recipe.opt = "adamw";
    recipe.sched = "cosine";
    recipe.grad_accum_steps = 2;
    recipe.epochs = 3;
    check_same(recipe);
    recipe.precision = "amp_float16";  // its scale falls, and the step is recorded anew
    check_same(recipe);
    recipe.precision = "bfloat16";
    recipe.opt = "lamb";
    recipe.grad_accum_steps = 4;  // an epoch ends with a step of two batches
    check_same(recipe);
  }
}

TEST_CASE("cuda graph: steps have the same bits with it: outputs that are computed again in backward") {
  for (const Device device : devices_with_graphs()) {
    const DefaultDeviceGuard guard(device);
    Recipe recipe = graph_recipe();
    recipe.recompute_norms = true;
    check_same(recipe);
    const Outcome kept = outcome_of(graph_recipe(), GraphMode::off);
    CHECK(differences_of(outcome_of(recipe, GraphMode::on).checkpoint.model, kept.checkpoint.model) == "");
  }
}

TEST_CASE("cuda graph: a norm of a plug-in that counts its passes in tensors fades with the same bits") {
  norma_register_plugin();
  for (const Device device : devices_with_graphs()) {
    const DefaultDeviceGuard guard(device);
    Recipe recipe = graph_recipe();
    recipe.norm = "taper[warmup_steps=4,taper_steps=4]";
    check_same(recipe);
    int64_t steps = 0;
    for (const auto& [name, x] : outcome_of(recipe, GraphMode::on).checkpoint.model) {
      steps = name == "norm.steps" ? x.item<int64_t>() : steps;
    }
    CHECK(steps == 10);  // of 12, two of which are left out
  }
}

TEST_CASE("cuda graph: weights are converted in each launch, also behind an ordinary step that overflowed") {
  for (const Device device : devices_with_graphs()) {
    const DefaultDeviceGuard guard(device);
    Recipe recipe = graph_recipe();
    recipe.precision = "amp_float16";
    recipe.grad_accum_steps = 4;  // two steps an epoch: four batches, then two
    recipe.epochs = 8;
    recipe.lr = 0.4;
    check_same(recipe);
  }
}

TEST_CASE("cuda graph: what was recorded when the recording failed counts as not done, and the run goes on without") {
  for (const Device device : devices_with_graphs()) {
    const DefaultDeviceGuard guard(device);
    Recipe recipe = graph_recipe();
    recipe.model = "resnet18";
    recipe.norm = "batch[momentum=none]";  // whose share of new statistics the host works out from a count
    recipe.image_size = 8;
    recipe.batch_size = 12;
    recipe.epochs = 2;
    recipe.precision = "amp_bfloat16";
    CHECK_FALSE(error_of([&] { outcome_of(recipe, GraphMode::on); }) == "");
    const Outcome found = outcome_of(recipe, GraphMode::automatic);
    const Outcome expected = outcome_of(recipe, GraphMode::off);
    CHECK(found.result.graph_steps == 0);
    CHECK(found.result.losses == expected.result.losses);
    CHECK(differences_of(found.checkpoint.model, expected.checkpoint.model) == "");
  }
}

TEST_CASE("cuda graph: where steps cannot be recorded the run says why") {
  for (const Device device : devices_with_graphs()) {
    const DefaultDeviceGuard guard(device);
    Recipe recipe = graph_recipe();
    recipe.opt = "rmsproptf";
    CHECK(error_of([&] { outcome_of(recipe, GraphMode::on); }) ==
          "train: cuda-graph: expected steps that become a graph, but the numbers of rmsproptf go to its kernels by "
          "value");
  }
}

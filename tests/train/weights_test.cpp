#include "train/weights.h"

#include "core/copy.h"
#include "core/factory.h"
#include "data/safetensors.h"
#include "files.h"
#include "models/registry.h"
#include "models/state_dict_names.h"
#include "nn/norm/factory.h"
#include "session/trainer.h"
#include "small_runs.h"
#include "support.h"
#include "train/training_state.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>

using namespace norma;
using namespace norma::train;
using norma::test::differ;
using norma::test::error_of;
using norma::test::max_difference;
using norma::test::small_recipe;
using norma::test::TemporaryFolder;

namespace {

/// Weights that are no start values, as a run has them in the end.
nn::NamedTensors weights_of(const std::string& model, const models::ModelOptions& options) {
  nn::NamedTensors state = models::create_model(model, options)->state_dict();
  uint64_t seed = 100;
  for (auto& [name, x] : state) {
    if (is_floating(x.dtype())) {
      x = norma::test::random_tensor(x.sizes(), ++seed, DType::float32);
    }
  }
  return state;
}

std::map<std::string, Tensor> state_of(const nn::Module& model) {
  const nn::NamedTensors state = model.state_dict();
  return {state.begin(), state.end()};
}

}  // namespace

TEST_CASE("initial weights: names of other libraries and wrappers are recognized") {
  const TemporaryFolder folder;
  const std::string file = (folder / "x.safetensors").string();
  const models::ModelOptions options{.num_classes = 10, .patch_size = 4};
  Recipe recipe = small_recipe();
  recipe.initial_checkpoint = file;
  const nn::NamedTensors weights = weights_of("convnext_atto", options);
  for (const models::Dialect dialect :
       {models::Dialect::timm, models::Dialect::torchvision, models::Dialect::facebook, models::Dialect::huggingface}) {
    CAPTURE(models::to_string(dialect));
    nn::NamedTensors renamed = models::renamed(weights, dialect);
    for (auto& [name, x] : renamed) {
      name.insert(0, "module.model.");
    }
    data::save_safetensors(file, renamed);
    const auto model = models::create_model("convnext_atto", options);
    CHECK(load_initial_weights(*model, recipe) ==
          fmt::format("initial-checkpoint: {0} of {0} tensors are taken from {1}, under names of {2}, behind "
                      "'module.model.'",
                      weights.size(), file, models::to_string(dialect)));
    const auto state = state_of(*model);
    for (const auto& [name, x] : weights) {
      CHECK_MESSAGE(max_difference(state.at(name), x) == 0, name);
    }
  }
}

TEST_CASE("initial weights: the classifier of other classes and the tensors of another norm keep their start values") {
  const TemporaryFolder folder;
  const std::string file = (folder / "x.safetensors").string();
  Recipe recipe = small_recipe("resnet18");
  recipe.initial_checkpoint = file;
  recipe.norm = "group:8";
  const nn::NamedTensors weights = weights_of("resnet18", {.num_classes = 7, .norm = "batch"});
  data::save_safetensors(file, weights);
  const auto fresh = models::create_model("resnet18", {.num_classes = 10, .norm = "group:8"});
  const auto model = models::create_model("resnet18", {.num_classes = 10, .norm = "group:8"});
  const std::string said = load_initial_weights(*model, recipe);
  CHECK(said.starts_with("initial-checkpoint: 60 of 62 tensors are taken from " + file +
                         ", under names of torchvision; start values: fc.weight, fc.bias; not used: "
                         "bn1.running_mean, bn1.running_var, layer1.0.bn1.running_mean, "));
  const auto state = state_of(*model);
  const std::map<std::string, Tensor> given(weights.begin(), weights.end());
  for (const auto& [name, x] : fresh->state_dict()) {
    CHECK_MESSAGE(max_difference(state.at(name), name.starts_with("fc.") ? x : given.at(name)) == 0, name);
  }

  recipe.strict = true;
  CHECK(error_of([&] { load_initial_weights(*model, recipe); })
            .starts_with("weights: " + file +
                         ": expected those of this resnet18, got a file of resnet18 (by its names): "
                         "load_state_dict: unexpected: bn1.running_mean, "));
  // With the head made anew, all of the file fits a network with its norm.
  recipe.reset_head = true;
  recipe.norm = "batch";
  const auto same = models::create_model("resnet18", {.num_classes = 7, .norm = "batch"});
  CHECK(load_initial_weights(*same, recipe) == "initial-checkpoint: 120 of 122 tensors are taken from " + file +
                                                   ", under names of torchvision; start values: fc.weight, fc.bias");
  CHECK(differ(same->state_dict().back().second, given.at("fc.bias")));
}

namespace {

/// A norm of a user's own, which is no nn::Norm, with a weight alone.
class OwnNorm : public nn::Module {
 public:
  explicit OwnNorm(int64_t channels)
      : scale_(register_module("scale", std::make_shared<Scale>(channels))),
        offset_(register_parameter("offset", zeros({channels}))) {}
  Tensor forward(const Tensor& x) override { return (*scale_)(x); }
  [[nodiscard]] std::string name() const override { return "OwnNorm"; }

 private:
  class Scale : public nn::Module {
   public:
    explicit Scale(int64_t channels) : weight_(register_parameter("weight", ones({channels}))) {}
    Tensor forward(const Tensor& x) override { return x; }
    [[nodiscard]] std::string name() const override { return "Scale"; }

   private:
    Tensor weight_;
  };
  std::shared_ptr<Scale> scale_;
  Tensor offset_;
};

class ScaleOnly : public nn::Module {
 public:
  explicit ScaleOnly(int64_t channels) : weight_(register_parameter("weight", ones({channels}))) {}
  Tensor forward(const Tensor& x) override { return x; }
  [[nodiscard]] std::string name() const override { return "ScaleOnly"; }

 private:
  Tensor weight_;
};

}  // namespace

TEST_CASE("initial weights: a norm of one's own begins with those of a network with another norm") {
  nn::register_norm("scale_only", [](int64_t channels) { return std::make_shared<ScaleOnly>(channels); });
  nn::register_norm("own_parts", [](int64_t channels) { return std::make_shared<OwnNorm>(channels); });
  const TemporaryFolder folder;
  for (const std::string network : {"resnet18", "convnext_atto"}) {
    Recipe recipe = small_recipe(network);
    recipe.initial_checkpoint = (folder / (network + ".safetensors")).string();
    const nn::NamedTensors weights = weights_of(network, {.num_classes = 10, .patch_size = recipe.patch_size});
    const std::map<std::string, Tensor> given(weights.begin(), weights.end());
    data::save_safetensors(recipe.initial_checkpoint, weights);
    for (const std::string norm : {"scale_only", "own_parts"}) {
      CAPTURE(norm);
      recipe.norm = norm;
      recipe.strict = false;
      const auto model = make_model(recipe, 10);
      const std::string line = load_initial_weights(*model, recipe);
      CHECK_MESSAGE(
          line.find("; not used: " + std::string(norm == "own_parts"
                                                     ? network == "resnet18" ? "bn1.weight, " : "stem.1.weight, "
                                                 : network == "resnet18" ? "bn1.bias, "
                                                                         : "stem.1.bias, ")) != std::string::npos,
          line);
      CHECK((line.find("; start values: ") != std::string::npos) == (norm == "own_parts"));
      for (const auto& [name, x] : model->state_dict()) {
        if (given.contains(name)) {
          CHECK_MESSAGE(max_difference(given.at(name), x) == 0, name);
        }
      }
      recipe.strict = true;
      CHECK(error_of([&] { load_initial_weights(*model, recipe); }).find("unexpected: ") != std::string::npos);
    }
  }
}

TEST_CASE("initial weights: those of another network, and numbers that are not finite, are refused") {
  const TemporaryFolder folder;
  const std::string file = (folder / "x.safetensors").string();
  Recipe recipe = small_recipe("resnet34");
  recipe.initial_checkpoint = file;
  nn::NamedTensors weights = weights_of("resnet18", {.num_classes = 10});
  data::save_safetensors(file, weights);
  const auto model = models::create_model("resnet34", {.num_classes = 10});
  CHECK(error_of([&] { load_initial_weights(*model, recipe); })
            .starts_with("weights: " + file +
                         ": expected those of this resnet34, got a file of resnet18 (by its "
                         "names): load_state_dict: missing: "));
  recipe.use_ema = true;
  CHECK(error_of([&] { load_initial_weights(*model, recipe); }) ==
        "weights: " + file + ": expected averages of the weights (state_dict_ema, model_ema, …), got none");
  recipe.use_ema = false;
  static_cast<float*>(weights[0].second.raw_data())[3] = NAN;
  data::save_safetensors(file, weights);
  CHECK(error_of([&] { load_initial_weights(*model, recipe); }) ==
        "initial-checkpoint: " + file +
            ": tensor 'conv1.weight': expected finite numbers, got 1 of 9408 that are NaN "
            "or infinite");
}

TEST_CASE("initial weights: sizes that no library has are refused with the name of the file") {
  const TemporaryFolder folder;
  Recipe recipe = small_recipe();
  recipe.initial_checkpoint = (folder / "x.safetensors").string();
  data::save_safetensors(recipe.initial_checkpoint,
                         {{"stages.0.blocks.0.mlp.fc1.weight", norma::test::random_tensor({8, 2, 3, 3}, 1)}});
  const auto model = models::create_model("convnext_atto", {.num_classes = 10, .patch_size = 4});
  CHECK(error_of([&] { load_initial_weights(*model, recipe); })
            .starts_with("weights: " + recipe.initial_checkpoint +
                         ": expected those of this convnext_atto, got a file of "));
}

TEST_CASE("initial weights: a run begins with them, and goes on without the file") {
  const TemporaryFolder folder;
  Recipe recipe = small_recipe();
  recipe.initial_checkpoint = (folder / "x.safetensors").string();
  recipe.head_lr = 0;
  const nn::NamedTensors weights = weights_of("convnext_atto", {.num_classes = 10, .patch_size = 4});
  data::save_safetensors(folder / "x.safetensors", weights);
  Trainer whole(recipe, {.output = folder / "a", .quiet = true});
  CHECK(whole.initial_weights().starts_with("initial-checkpoint: "));
  const TrainResult result = whole.run();
  const nn::NamedTensors end = load_weights(folder / "a" / "last.safetensors").tensors;
  // A rate of 0 leaves the classifier as it was, and nothing else.
  for (size_t i = 0; i < end.size(); ++i) {
    const bool of_head = end[i].first.starts_with("head.fc.");
    const std::map<std::string, Tensor> before(weights.begin(), weights.end());
    CHECK_MESSAGE((max_difference(end[i].second, before.at(end[i].first)) == 0) == of_head, end[i].first);
  }

  int stages = 0;
  const auto stop = [&](std::string_view stage) {
    if (stage == "step" && ++stages == 2) {
      throw Error("enough");
    }
  };
  CHECK(error_of([&] {
          Trainer(recipe,
                  {.output = folder / "b", .keep = {.recovery_interval = 1}, .quiet = true, .before_stage = stop})
              .run();
        }) == "enough");
  std::filesystem::remove(folder / "x.safetensors");
  const std::filesystem::path recovery = folder / "b" / "recovery-0-1.safetensors";
  const Checkpoint checkpoint = load_checkpoint(recovery);
  Trainer rest(recipe, {.output = folder / "b", .resumed = recovery, .quiet = true}, checkpoint);
  CHECK(rest.initial_weights().empty());
  CHECK(rest.run().test.loss == result.test.loss);
}

TEST_CASE("weights: tensors that are not finite are named") {
  Tensor x = zeros({2, 3});
  const auto error = [&](const Tensor& y) {
    return error_of([&] { check_finite("op", "file", {{"a", zeros({2})}, {"x", y}}); });
  };
  CHECK(error(x) == "no error");
  CHECK(error(zeros({3}, {.dtype = DType::int64})) == "no error");
  CHECK(error(zeros({0})) == "no error");
  const std::string text = "op: file: tensor 'x': expected finite numbers, got ";
  x.data<float>()[1] = NAN;
  CHECK(error(x) == text + "1 of 6 that are NaN or infinite");
  x.data<float>()[5] = -INFINITY;
  CHECK(error(x) == text + "2 of 6 that are NaN or infinite");
  for (const DType dtype : {DType::float64, DType::bfloat16, DType::float16}) {
    CHECK(error(full({4}, INFINITY, {.dtype = dtype})) == text + "4 of 4 that are NaN or infinite");
    CHECK(error(full({4}, 1, {.dtype = dtype})) == "no error");
  }
}

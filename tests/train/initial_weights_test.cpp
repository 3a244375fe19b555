#include "train/initial_weights.h"

#include "core/copy.h"
#include "core/factory.h"
#include "data/safetensors.h"
#include "files.h"
#include "models/registry.h"
#include "models/state_dict_names.h"
#include "small_runs.h"
#include "support.h"
#include "train/trainer.h"
#include "train/training_state.h"

#include <doctest/doctest.h>

#include <map>
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

TEST_CASE("initial weights: names of other libraries and wrappers are recognised") {
  const TemporaryFolder folder;
  const std::string file = (folder / "x.safetensors").string();
  const models::ModelOptions options{.num_classes = 10, .patch_size = 4};
  Recipe recipe = small_recipe();
  recipe.initial_checkpoint = file;
  const nn::NamedTensors weights = weights_of("convnext_atto", options);
  for (const models::Dialect dialect :
       {models::Dialect::timm, models::Dialect::torchvision, models::Dialect::facebook}) {
    CAPTURE(models::to_string(dialect));
    nn::NamedTensors renamed = models::rename_state_dict(weights, models::Dialect::timm, dialect).tensors;
    for (auto& [name, x] : renamed) {
      name.insert(0, "module.model.");
    }
    data::save_safetensors(file, renamed);
    const auto model = models::create_model("convnext_atto", options);
    CHECK(load_initial_weights(*model, recipe) ==
          fmt::format("initial-checkpoint: {0} of {0} tensors are taken from {1}, under names of {2}", weights.size(),
                      file, models::to_string(dialect)));
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
        "checkpoint: " + file + ": expected a checkpoint with averages of the weights, got a file with weights only");
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
  CHECK(error_of([&] {
          load_initial_weights(*model, recipe);
        }).starts_with("initial-checkpoint: " + recipe.initial_checkpoint + ": convert: tensor 'stages.0."));
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
  const nn::NamedTensors end = load_weights(folder / "a" / "last.safetensors");
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

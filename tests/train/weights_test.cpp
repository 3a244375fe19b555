#include "train/weights.h"

#include "core/copy.h"
#include "core/factory.h"
#include "data/safetensors.h"
#include "files.h"
#include "models/registry.h"
#include "models/state_dict_names.h"
#include "nn/layers.h"
#include "nn/norm/factory.h"
#include "nn/sequential.h"
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
                         ": expected those of this resnet18, got a file of another resnet18 (by its names): "
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

TEST_CASE("initial weights: a vit's positions are resized as by timm") {
  // import torch
  // from timm.layers.pos_embed import resample_abs_pos_embed  # 1.0.31
  // for a, b in ((2, 3), (3, 2)):
  //     x = torch.sin(0.7 * torch.arange((1 + a * a) * 2, dtype=torch.float64) + 1).reshape(1, -1, 2).float()
  //     print(resample_abs_pos_embed(x, [b, b], num_prefix_tokens=1))
  // Here each of the two channels stands 96 times.
  const std::map<int64_t, std::vector<double>> expected = {
      {3, {0.84147096, 0.99166483,  0.8734594,   0.14567,     0.052707825, -0.51443875, -0.76804411,
           -1.1745478, -0.10095873, -0.17289808, -0.12707701, -0.11484737, -0.15319528, -0.05679667,
           -1.0753773, -0.49146628, -0.30686194, 0.28474417,  0.46165383,  1.0609549}},
      {2,
       {0.84147096, 0.99166483, 0.41506177, 0.1250464, -0.4125776, -0.51017183, -0.30813459, 0.027222425, 0.48347673,
        0.47706452}}};
  const TemporaryFolder folder;
  const std::string file = (folder / "x.safetensors").string();
  const auto in_two_channels = [](const std::vector<double>& values) {
    std::vector<float> wide;
    for (size_t i = 0; i < values.size(); ++i) {
      for (int64_t channel = 0; channel < 96; ++channel) {
        wide.push_back(static_cast<float>(values[i]));
      }
    }
    return from_vector<float>(wide, {1, static_cast<int64_t>(values.size()) / 2, 192});
  };
  for (const auto& [to, values] : expected) {
    const int64_t from = 5 - to;
    CAPTURE(from);
    nn::NamedTensors weights = weights_of("vit_tiny", {.num_classes = 10, .patch_size = 8, .image_size = 8 * from});
    for (auto& [name, x] : weights) {
      if (name == "pos_embed") {
        std::vector<double> waves(static_cast<size_t>(2 * (1 + from * from)));
        for (size_t i = 0; i < waves.size(); ++i) {
          waves[i] = std::sin(0.7 * static_cast<double>(i) + 1);
        }
        x = in_two_channels(waves);
      }
    }
    data::save_safetensors(file, weights);
    Recipe recipe = small_recipe("vit_tiny");
    recipe.patch_size = 8;
    recipe.image_size = 8 * to;
    recipe.initial_checkpoint = file;
    const auto model = make_model(recipe, 10, /* initialize= */ false);
    const std::string line = load_initial_weights(*model, recipe);
    CHECK(line ==
          fmt::format(
              "initial-checkpoint: 152 of 152 tensors are taken from {0}, under names of timm; pos_embed is resized "
              "from {1} x {1} to {2} x {2} patches",
              file, from, to));
    CHECK(max_difference(state_of(*model).at("pos_embed"), in_two_channels(values)) <= 2e-6);
    recipe.patch_size = 4;
    const auto other = make_model(recipe, 10, /* initialize= */ false);
    CHECK(error_of([&] { load_initial_weights(*other, recipe); }) ==
          fmt::format(
              "weights: {}: expected patches of 4 pixels, as of this vit_tiny, got 8; --patch-size says which the "
              "network has",
              file));
  }
}

TEST_CASE("weights: what a vit's recipe leaves open, its file says") {
  const TemporaryFolder folder;
  const std::string file = (folder / "x.safetensors").string();
  const models::ModelOptions options{.num_classes = 10,
                                     .patch_size = 8,
                                     .layer_scale = 1,
                                     .image_size = 32,
                                     .global_pool = "avg",
                                     .qk_norm = "rms2d",
                                     .qkv_bias = false,
                                     .initialize = false};
  const nn::NamedTensors weights = weights_of("vit_tiny", options);
  data::save_safetensors(file, weights);
  Recipe recipe = small_recipe("vit_tiny");
  std::string said;
  const auto model = load_network("eval", recipe, 10, file, {}, [&](const std::string& line) { said += line; });
  CHECK(said.empty());
  for (const auto& [name, x] : weights) {
    CAPTURE(name);
    CHECK(max_difference(state_of(*model).at(name), x) == 0);
  }
  CHECK(differences(small_recipe("vit_tiny"), recipe) ==
        std::vector<std::string>{"patch-size none → 8", "layer-scale none → 1", "global-pool none → \"avg\"",
                                 "qk-norm none → \"rms2d\"", "qkv-bias true → false"});
  recipe = small_recipe("vit_tiny");
  Recipe larger = recipe;
  larger.image_size = 72;  // a multiple of 8, not of the usual 16
  CHECK_NOTHROW(check_recipe(larger, /* with_weights= */ true));
  CHECK_NOTHROW(load_network("eval", larger, 10, file, {}, [](const std::string&) {}));
  larger.image_size = 36;
  CHECK(error_of([&] { load_network("eval", larger, 10, file, {}, [](const std::string&) {}); }) ==
        "eval: img-size: expected a multiple of the patch-size 8 of vit_tiny, got 36");
  CHECK(error_of([&] { load_network("eval", recipe, 7, file, {}, [](const std::string&) {}); }) ==
        fmt::format(
            "weights: {}: expected a classifier of 7 classes, got one of 10; --num-classes says how many the file "
            "has",
            file));
}

TEST_CASE("weights: a registered network has its own names, though a known one is a part of it") {
  models::register_model("resnet_and_head", {.make = [](const models::ModelOptions& given) {
                           auto network = std::make_shared<nn::Sequential>();
                           network->push_back(models::create_model("resnet18", {.num_classes = 16}));
                           network->push_back(std::make_shared<nn::Linear>(16, given.num_classes));
                           return network;
                         }});
  const TemporaryFolder folder;
  const std::string file = (folder / "x.safetensors").string();
  const nn::NamedTensors weights = weights_of("resnet_and_head", {.num_classes = 10});
  save_checkpoint(file, {.model = weights, .model_name = "resnet_and_head"});

  Recipe recipe = small_recipe("resnet_and_head");
  std::string said;
  const auto say = [&](const std::string& line) { said += line; };
  const auto state = state_of(*load_network("eval", recipe, 10, file, {}, say));
  CHECK(said.empty());
  const Checkpoint mean = average_checkpoints({file});
  CHECK(mean.model.size() == weights.size());
  const std::map<std::string, Tensor> averaged(mean.model.begin(), mean.model.end());
  for (const auto& [name, x] : weights) {
    CAPTURE(name);
    CHECK(max_difference(state.at(name), x) == 0);
    REQUIRE(averaged.contains(name));
    CHECK(max_difference(averaged.at(name), x) == 0);
  }
  // The known network is still to be had.
  recipe = small_recipe("resnet18");
  CHECK_NOTHROW(load_network("eval", recipe, 16, file, {}, say));
}

TEST_CASE("weights: a recipe names the option of a norm that nobody knows") {
  Recipe recipe = small_recipe("vit_tiny");
  recipe.qk_norm = "layr2d";
  CHECK(error_of([&] { check_recipe(recipe); }) ==
        "train: qk-norm: norm: unknown norm 'layr2d'; did you mean 'layer2d'?");
}

TEST_CASE("weights: a recipe's placement of norms comes before that of its policy") {
  Recipe recipe = small_recipe("vit_tiny");
  const auto has = [&](const std::string& name) {
    return state_of(*make_model(recipe, 10)).contains("blocks.0." + name + ".weight");
  };
  CHECK(has("norm1"));
  recipe.norm_policy = "placement = \"post\"\n";
  CHECK(has("norm1_post"));
  recipe.norm_placement = "peri";
  CHECK(has("norm1_out"));
  recipe.norm_policy.clear();
  CHECK(has("norm2_in"));
  CHECK_FALSE(has("norm1"));
  recipe.norm_placement = "perri";
  CHECK(error_of([&] { check_recipe(recipe); }) ==
        "train: norm-placement: unknown placement 'perri'; did you mean 'peri'?");
  Recipe other = small_recipe("resnet18");
  other.norm_placement = "pre";
  CHECK(error_of([&] { check_norm_policy(other); }) ==
        "norm policy: placement: expected a network that can place its norms, such as convnext_tiny, got resnet18");
}

TEST_CASE("weights: timm's name of a vit says its patches") {
  const TemporaryFolder folder;
  const std::string file = (folder / "x.safetensors").string();
  data::save_safetensors(
      file, weights_of("vit_tiny", {.num_classes = 10, .patch_size = 8, .image_size = 32, .initialize = false}));
  Recipe recipe = small_recipe("vit_tiny_patch16_224");
  CHECK(error_of([&] { load_network("eval", recipe, 10, file, {}, [](const std::string&) {}); }) ==
        fmt::format("weights: {}: expected patches of 16 pixels, as of this vit_tiny_patch16_224, got 8; --patch-size "
                    "says which the network has",
                    file));
}

TEST_CASE("initial weights: a vit for images of 28 pixels, which the usual patches do not divide, gets other norms") {
  const TemporaryFolder folder;
  const std::string file = (folder / "x.safetensors").string();
  Recipe recipe = small_recipe("vit_tiny");
  recipe.image_size = 28;
  data::save_safetensors(file, make_model(recipe, 10, /* initialize= */ false)->state_dict());
  recipe.initial_checkpoint = file;
  recipe.qk_norm = "rms2d";
  const auto model = make_model(recipe, 10, /* initialize= */ false);
  CHECK(load_initial_weights(*model, recipe)
            .starts_with(fmt::format("initial-checkpoint: 152 of 176 tensors are taken from {}", file)));
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

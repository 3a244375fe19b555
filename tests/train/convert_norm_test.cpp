#include "train/weights.h"

#include "data/safetensors.h"
#include "error_text.h"
#include "files.h"
#include "models/registry.h"
#include "ops/shape/copy.h"
#include "session/trainer.h"
#include "small_runs.h"
#include "train/checkpoint.h"

#include <doctest/doctest.h>

#include <string>

using namespace norma;
using namespace norma::train;
using norma::test::error_of;
using norma::test::max_difference;
using norma::test::small_recipe;
using norma::test::TemporaryFolder;

namespace {

Recipe recipe_for(const std::string& model, const std::filesystem::path& file) {
  Recipe recipe = small_recipe(model, {.batch_size = 4, .images = 16, .test_images = 8});
  recipe.initial_checkpoint = file.string();
  recipe.convert_norm = "calibrate";
  recipe.convert_batches = 2;
  return recipe;
}

void write_weights(const std::filesystem::path& file, const Recipe& recipe, const std::string& norm,
                   const std::map<std::string, std::string>& metadata = {}) {
  Recipe before = recipe;
  before.norm = norm;
  data::save_safetensors(file, make_model(before, 10)->state_dict(), metadata);
}

ConvertedNetwork convert(const Recipe& recipe) {
  return convert_network(recipe, make_dataset(recipe, data::Split::train));
}

}  // namespace

TEST_CASE("convert-norm: the norm before is that of the file") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "x.safetensors";
  Recipe resnet = recipe_for("resnet18", file);
  resnet.norm = "layer2d";
  Recipe convnext = recipe_for("convnext_atto", file);
  convnext.norm = "group:8";

  write_weights(file, resnet, "batch");
  CHECK(convert(resnet).from == "batch");
  CHECK(convert(resnet).images == 8);
  CHECK(convert(resnet).layers.size() == 20);
  write_weights(file, resnet, "group:4");
  CHECK(
      error_of([&] { convert(resnet); }) ==
      "convert-norm: " + file.string() +
          ": expected running statistics of batch norm, or a norm in the metadata, got neither; say --from-norm SPEC");
  resnet.from_norm = "group:4";
  CHECK(convert(resnet).from == "group:4");
  resnet.from_norm = "batch";
  CHECK(error_of([&] { convert(resnet); })
            .starts_with(
                "weights: " + file.string() +
                ": expected those of this resnet18, got a file of another resnet18 (by its names): load_state_dict: "
                "missing: bn1.running_mean"));
  resnet.from_norm.clear();
  write_weights(file, resnet, "group:4", {{"model", "resnet18"}, {"norm", "group:4"}});
  CHECK(convert(resnet).from == "group:4");

  write_weights(file, convnext, "layer2d");
  CHECK(convert(convnext).from == "layer2d");
  write_weights(file, convnext, "batch");
  CHECK(convert(convnext).from == "batch");
}

TEST_CASE("convert-norm: fold and keep, and norms that stay") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "x.safetensors";
  Recipe recipe = recipe_for("convnext_atto", file);
  recipe.norm = "group:8";
  write_weights(file, recipe, "layer2d");
  recipe.convert_norm = "fold";
  CHECK(error_of([&] {
          convert(recipe);
        }).starts_with("fold_statistics: 'stem.1': expected running statistics to fold, got LayerNorm2d("));
  write_weights(file, recipe, "batch");
  CHECK(convert(recipe).layers.front().mean <= 100);
  recipe.convert_norm = "keep";
  CHECK(convert(recipe).layers.size() == 17);
  recipe.norm = "batch";
  const ConvertedNetwork same = convert(recipe);
  CHECK(same.layers.empty());
  CHECK(same.text(recipe) == "convert-norm: all norms are batch as before, and stay as they are");
}

TEST_CASE("convert-norm: a run begins with the new norms, and a resumed one does not choose them again") {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder / "x.safetensors";
  Recipe recipe = recipe_for("convnext_atto", file);
  recipe.norm = "group:8";
  recipe.precision = "bfloat16";
  write_weights(file, recipe, "batch");
  const Trainer trainer(recipe, {.output = folder / "a", .quiet = true});
  CHECK(trainer.initial_weights().find("\nconvert-norm: batch → group:8, calibrate; differences over 8 training "
                                       "images, in deviations of the layer's old output\nlayer") != std::string::npos);
  CHECK(trainer.initial_weights().find("\nstages.0.blocks.0.norm ") != std::string::npos);
  const nn::NamedTensors wide = convert(recipe).model->state_dict();
  const nn::NamedTensors state = trainer.model()->state_dict();
  REQUIRE(wide.size() == state.size());
  for (size_t i = 0; i < wide.size(); ++i) {
    CHECK_MESSAGE(max_difference(to(state[i].second.detach(), DType::float64),
                                 to(to(wide[i].second.detach(), state[i].second.dtype()), DType::float64)) == 0,
                  state[i].first);
  }
}

#include "train/recipe.h"

#include "data/image_formats.h"
#include "data/safetensors.h"
#include "error_text.h"
#include "files.h"
#include "paths.h"
#include "train/recipe_complaint.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <variant>
#include <vector>

using namespace norma;
using norma::test::complaint;
using norma::test::error_of;
using train::Recipe;

namespace {

/// Forty images, ten of each class, one class after the other.
class Sorted final : public data::Dataset {
 public:
  Sorted() {
    info_.name = "sorted";
    info_.size = 40;
    info_.height = info_.width = 1;
    info_.sorted_by_label = true;
    info_.class_names = {"a", "b", "c", "d"};
    info_.mean = {0};
    info_.std = {1};
  }
  [[nodiscard]] const data::DatasetInfo& info() const override { return info_; }
  int64_t load(int64_t index, data::Image& image) const override {
    image.set_size(1, 1, 1);
    image.pixels[0] = static_cast<uint8_t>(index);
    return index / 10;
  }

 private:
  data::DatasetInfo info_;
};

}  // namespace

TEST_CASE("recipe: the default makes sense") {
  CHECK(complaint([](Recipe&) {}).empty());
}

TEST_CASE("recipe: errors name the value and what was expected") {
  CHECK(complaint([](Recipe& r) { r.model = "resnet51"; }) ==
        "train: unknown model 'resnet51'; did you mean 'resnet50'?");
  CHECK(complaint([](Recipe& r) { r.dataset = "fashon_mnist"; }) ==
        "train: unknown dataset 'fashon_mnist'; did you mean 'fashion_mnist'?");
  CHECK(complaint([](Recipe& r) { r.opt = "adam"; }) == "train: unknown optimizer 'adam'; did you mean 'adamw'?");
  CHECK(complaint([](Recipe& r) { r.sched = "cosin"; }) == "train: unknown schedule 'cosin'; did you mean 'cosine'?");
  CHECK(complaint([](Recipe& r) { r.image_size = 0; }) ==
        "train: img-size: expected a whole number from 1 to 8192, got 0");
  CHECK(complaint([](Recipe& r) { r.lr = std::numeric_limits<double>::quiet_NaN(); }) ==
        "train: lr: expected a number in (0, 1000], got nan");
  CHECK(complaint([](Recipe& r) { r.bce_target_thresh = 0.2; }) ==
        "train: bce-target-thresh: expected bce-loss with it, got none");
  CHECK(complaint([](Recipe& r) { r.bce_loss = true, r.bce_target_thresh = 1; }) ==
        "train: bce-target-thresh: expected a number in [0, 1), got 1");
}

TEST_CASE("recipe: errors of the augmentation") {
  CHECK(complaint([](Recipe& r) { r.scale = {0.5}; }) == "train: scale: expected two numbers, got 1");
  CHECK(complaint([](Recipe& r) {
          r.scale = {0.5, 0.2};
        }) == "train: scale: expected two numbers in (0, 1], the lower first, got 0.5 and 0.2");
  CHECK(complaint([](Recipe& r) { r.ratio = {1, 2, 3}; }) == "train: ratio: expected two numbers, got 3");
  CHECK(complaint([](Recipe& r) {
          r.ratio = {0, 2};
        }) == "train: ratio: expected two numbers above 0, the lower first, got 0 and 2");
  CHECK(complaint([](Recipe& r) {
          r.scale = {0.5, 1};
          r.crop_padding = 4;
        }) == "train: random-crop: expected 0 beside scale, got 4");
  CHECK(complaint([](Recipe& r) {
          r.flip = true;
          r.hflip = 0.5;
        }) == "train: hflip: expected 0 beside flip, which mirrors half of the images, got 0.5");
  CHECK(complaint([](Recipe& r) { r.color_jitter = "much"; }) ==
        "train: color-jitter: expected one, three or four numbers as in 0.4 or 0.4,0.4,0.4,0.1, got much");
  CHECK(complaint([](Recipe& r) {
          r.aa = "augmix";
        }).starts_with("train: aa: unknown policy 'augmix'; expected ta_wide, or rand"));
  CHECK(complaint([](Recipe& r) { r.remode = "const "; }) ==
        "train: remode: unknown mode 'const '; did you mean 'const'?");
  CHECK(complaint([](Recipe& r) { r.train_interpolation = "bilinea"; }) ==
        "train: train-interpolation: unknown name 'bilinea'; did you mean 'bilinear'?");
  CHECK(complaint([](Recipe& r) {
          r.cutmix = 1;
          r.batch_size = 1;
        }) == "train: batch-size: expected at least 2 to mix images of a batch, got 1");
}

TEST_CASE("recipe: its augmentation is what the transform and the loader get") {
  CHECK(train::augmentation_text({}) == "none");
  const data::TransformOptions none = train::train_transform({});
  CHECK_FALSE(none.augment);
  CHECK_FALSE(none.augmentation.resized_crop);
  CHECK_FALSE(train::mix_options({}).any());
  Recipe recipe;
  recipe.scale = {0.2, 0.9};
  recipe.hflip = 0.5;
  recipe.aa = "rand-m7-n3";
  recipe.color_jitter = "0.4";
  recipe.reprob = 0.25;
  recipe.remode = "pixel";
  recipe.recount = 3;
  recipe.train_interpolation = "bicubic";
  recipe.mixup = 0.8;
  recipe.mixup_switch_prob = 0.1;
  CHECK(train::augmentation_text(recipe) ==
        "resized crop of 0.2 to 0.9 of the area, hflip 0.5, rand-m7-n3, color jitter 0.4, erasing 0.25, mixup 0.8");
  const data::TransformOptions options = train::train_transform(recipe);
  CHECK(options.filter == data::ResizeFilter::bicubic);
  CHECK_FALSE(options.random_filter);
  const data::AugmentOptions& augmentation = options.augmentation;
  REQUIRE(augmentation.resized_crop.has_value());
  CHECK(augmentation.resized_crop->scale.low == 0.2);
  CHECK(augmentation.resized_crop->ratio.high == doctest::Approx(4.0 / 3));
  CHECK(augmentation.hflip == 0.5);
  CHECK(std::get<data::RandAugmentOptions>(augmentation.policy.value()).num_layers == 3);
  CHECK(augmentation.color_jitter.saturation == 0.4);
  CHECK(augmentation.erasing.mode == data::ErasingMode::pixel);
  CHECK(augmentation.erasing.count == 3);
  CHECK(train::mix_options(recipe).mixup_alpha == 0.8);
  CHECK(train::mix_options(recipe).switch_probability == 0.1);
}

TEST_CASE("recipe: JSON without a field gives its default, other text is an error") {
  CHECK(train::recipe_from_json("{\"lr\": 0.5}").lr == 0.5);
  CHECK(train::recipe_from_json("{\"lr\": 0.5}").batch_size == Recipe{}.batch_size);
  // A policy that names no file has a name in errors.
  CHECK(error_of([] {
          train::check_recipe(train::recipe_from_json(R"({"norm_policy": "x"})"));
        }).starts_with("norm policy: the policy:1"));
  CHECK(train::recipe_from_json("{}").norm_policy_file.empty());
  CHECK(train::recipe_from_json(R"({"qk_norm": "none"})").qk_norm.empty());  // of versions that kept the word
  const auto error = [](const std::string& text) { return error_of([&] { train::recipe_from_json(text); }); };
  CHECK(error("no recipe").starts_with("recipe: the recipe: not JSON: "));
  CHECK(error("[]") == "recipe: expected a recipe, got []");
  CHECK(error("{\"lr\": \"fast\"}") == "recipe: lr: expected a number, got \"fast\"");
  CHECK(error("{\"batch_size\": 3.7}") == "recipe: batch_size: expected a whole number, got 3.7");
  CHECK(error("{\"seed\": -1}") == "recipe: seed: expected a whole number of at least 0, got -1");
  CHECK(error("{\"decay_milestones\": [3, 1.5]}") == "recipe: decay_milestones: expected a whole number, got 1.5");
  CHECK(error("{\"flip\": 1}") == "recipe: flip: expected true or false, got 1");
  CHECK(error("{\"patch_size\": true}") == "recipe: patch_size: expected a whole number, got true");
  CHECK(error("{\"model\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}") ==
        "recipe: the recipe: expected at most 32 objects and lists in each other, got more");
}

TEST_CASE("recipe: a part of the test images has all classes where they are sorted by them, and is always the same") {
  Recipe recipe;
  recipe.image_size = 1;
  recipe.batch_size = 40;
  const auto labels = [&](int64_t count, uint64_t seed) {
    recipe.test_images = count;
    recipe.seed = seed;
    return train::make_test_loader(recipe, std::make_shared<Sorted>(), /* workers= */ 0)
        .next()
        ->labels.to_vector<int64_t>();
  };
  const std::vector<int64_t> part = labels(20, 1);
  CHECK(part.size() == 20);
  CHECK(std::set(part.begin(), part.end()) == std::set<int64_t>{0, 1, 2, 3});
  CHECK(labels(20, 2) == part);
  for (const int64_t all : {0, 40, 100}) {
    const std::vector<int64_t> whole = labels(all, 1);
    CHECK(whole.size() == 40);
    CHECK(std::is_sorted(whole.begin(), whole.end()));
  }
}

TEST_CASE("recipe: differences are shown with both values") {
  Recipe after;
  after.lr = 0.01;
  after.patch_size = 2;
  const std::vector<std::string> lines = train::differences(Recipe{}, after);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0] == "patch-size none → 2");
  CHECK(lines[1] == "lr 0.002 → 0.01");
}

TEST_CASE("recipe: ConvNeXt gets patches of 2 on small images only, and what was asked for otherwise") {
  const auto patch = [](const Recipe& recipe) {
    for (const auto& [name, parameter] : train::make_model(recipe, 10)->named_parameters()) {
      if (name == "stem.0.weight") {
        return parameter.size(2);
      }
    }
    return int64_t{0};
  };
  Recipe recipe;
  recipe.model = "convnext_atto";
  CHECK(patch(recipe) == 2);
  recipe.image_size = 64;
  CHECK(patch(recipe) == 4);
  recipe.patch_size = 1;
  CHECK(patch(recipe) == 1);
}

TEST_CASE("recipe: options that have no effect, and what they would need") {
  using train::without_effect;
  CHECK(without_effect({}).empty());
  CHECK(without_effect({}, {"lr", "recount"}) == std::vector<std::string>{"recount has no effect without reprob"});
  struct Case {
    std::string line;
    std::function<void(Recipe&)> give;
    std::function<void(Recipe&)> enable;
  };
  const std::vector<Case> cases = {
      {"skip-bad-images has no effect without dataset imagefolder", [](Recipe& r) { r.skip_bad_images = true; },
       [](Recipe& r) { r.dataset = "imagefolder"; }},
      {"sync-bn has no effect without batch norm",
       [](Recipe& r) {
         r.sync_bn = true;
         r.norm = "group:8";
       },
       [](Recipe& r) { r.norm_policy = "\"layer4.*\" = \"batch\""; }},
      {"ratio has no effect without scale",
       [](Recipe& r) {
         r.ratio = {0.5, 2};
       },
       [](Recipe& r) {
         r.scale = {0.5, 1};
       }},
      {"remode has no effect without reprob", [](Recipe& r) { r.remode = "pixel"; }, [](Recipe& r) { r.reprob = 0.5; }},
      {"recount has no effect without reprob", [](Recipe& r) { r.recount = 2; }, [](Recipe& r) { r.reprob = 0.5; }},
      {"mixup-prob has no effect without mixup or cutmix", [](Recipe& r) { r.mixup_prob = 0.5; },
       [](Recipe& r) { r.cutmix = 1; }},
      {"mixup-switch-prob has no effect without both mixup and cutmix",
       [](Recipe& r) {
         r.mixup_switch_prob = 0.25;
         r.mixup = 0.5;
       },
       [](Recipe& r) { r.cutmix = 1; }},
      {"lr-base-size has no effect without lr-base", [](Recipe& r) { r.lr_base_size = 512; },
       [](Recipe& r) { r.lr_base = 0.1; }},
      {"lr-base-scale has no effect without lr-base", [](Recipe& r) { r.lr_base_scale = "sqrt"; },
       [](Recipe& r) { r.lr_base = 0.1; }},
      {"decay-epochs has no effect without sched step", [](Recipe& r) { r.decay_epochs = 2; },
       [](Recipe& r) { r.sched = "step"; }},
      {"decay-milestones has no effect without sched multistep", [](Recipe& r) { r.decay_milestones = {3}; },
       [](Recipe& r) { r.sched = "multistep"; }},
      {"decay-rate has no effect without sched step, multistep or poly", [](Recipe& r) { r.decay_rate = 0.5; },
       [](Recipe& r) { r.sched = "poly"; }},
      {"max-nonfinite has no effect without skip-nonfinite", [](Recipe& r) { r.max_nonfinite = 3; },
       [](Recipe& r) { r.skip_nonfinite = true; }},
      {"model-ema-decay has no effect without model-ema", [](Recipe& r) { r.model_ema_decay = 0.5; },
       [](Recipe& r) { r.model_ema = true; }},
      {"model-ema-warmup has no effect without model-ema", [](Recipe& r) { r.model_ema_warmup = true; },
       [](Recipe& r) { r.model_ema = true; }}};
  for (const Case& one : cases) {
    Recipe recipe;
    one.give(recipe);
    CHECK(without_effect(recipe) == std::vector<std::string>{one.line});
    one.enable(recipe);
    CHECK_MESSAGE(without_effect(recipe).empty(), one.line);
  }
}

TEST_CASE("recipe: images that are too small for a network are refused with the option's name") {
  Recipe recipe;
  recipe.model = "convnext_atto";
  recipe.image_size = 16;
  train::check_recipe(recipe);
  recipe.image_size = 15;
  CHECK(test::error_of([&] { train::check_recipe(recipe); }) ==
        "train: img-size: expected at least 16 for convnext_atto with a patch-size of 2, got 15");
  recipe.image_size = 31;
  recipe.patch_size = 4;
  CHECK(test::error_of([&] { train::check_recipe(recipe); }) ==
        "train: img-size: expected at least 32 for convnext_atto with a patch-size of 4, got 31");
  recipe.image_size = 32;
  train::check_recipe(recipe);
  recipe.patch_size.reset();
  recipe.model = "resnet18";
  recipe.image_size = 1;
  train::check_recipe(recipe);
}

TEST_CASE("recipe: decode scaled asks for as many pixels as are shown" *
          doctest::skip(data::read_kinds().find("JPEG") == std::string::npos)) {
  const test::TemporaryFolder folder;
  const data::Safetensors file =
      data::load_safetensors(test::source_folder() / "tests/reference/jpeg_windows.safetensors");
  const std::vector<uint8_t> bytes = file.find("2x2").to_vector<uint8_t>();  // 67 x 131
  for (const char* split : {"train", "val"}) {
    std::filesystem::create_directories(folder / split / "a");
    test::write_file(folder / split / "a/1.jpg", std::string(bytes.begin(), bytes.end()));
  }
  Recipe recipe;
  recipe.dataset = "imagefolder";
  recipe.data_dir = folder.path().string();
  recipe.image_size = 16;
  const auto height = [&](data::Split split) {
    data::Image image;
    train::make_dataset(recipe, split)->load(0, image);
    return image.height;
  };
  CHECK(height(data::Split::train) == 67);
  recipe.decode = "scaled";
  CHECK(height(data::Split::train) == 34);  // resized to 18, of which 16 are shown
  CHECK(height(data::Split::test) == 34);
  recipe.scale = {0.08, 1};
  CHECK(height(data::Split::train) == 17);
  CHECK(height(data::Split::test) == 34);
}

#include "train/recipe.h"

#include "core/error.h"
#include "core/nearest_name.h"
#include "data/json.h"
#include "nn/conv_factory.h"
#include "nn/norm/factory.h"
#include "nn/optim/adamw.h"
#include "nn/optim/parameter_groups.h"
#include "nn/optim/sgd.h"
#include "train/ranges.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace norma::train {

namespace {

/// Images below this are too small for ConvNeXt's patches of 4 pixels: four stages would leave one pixel of 32.
constexpr int64_t kSmallImage = 64;

using Json = nlohmann::ordered_json;

/// Calls visit(name, field) for every field, so that JSON, its inverse and differences() know the same ones.
template <class R, class F>
void for_each_field(R& recipe, F&& visit) {
  visit("model", recipe.model);
  visit("norm", recipe.norm);
  visit("norm_policy", recipe.norm_policy);
  visit("norm_policy_file", recipe.norm_policy_file);
  visit("conv_layer", recipe.conv_layer);
  visit("small_stem", recipe.small_stem);
  visit("patch_size", recipe.patch_size);
  visit("layer_scale", recipe.layer_scale);
  visit("zero_init_last", recipe.zero_init_last);
  visit("drop_path", recipe.drop_path);
  visit("dataset", recipe.dataset);
  visit("data_dir", recipe.data_dir);
  visit("image_size", recipe.image_size);
  visit("crop_padding", recipe.crop_padding);
  visit("flip", recipe.flip);
  visit("batch_size", recipe.batch_size);
  visit("epochs", recipe.epochs);
  visit("images", recipe.images);
  visit("test_images", recipe.test_images);
  visit("channels_last", recipe.channels_last);
  visit("opt", recipe.opt);
  visit("lr", recipe.lr);
  visit("weight_decay", recipe.weight_decay);
  visit("momentum", recipe.momentum);
  visit("sched", recipe.sched);
  visit("warmup_epochs", recipe.warmup_epochs);
  visit("decay_epochs", recipe.decay_epochs);
  visit("decay_rate", recipe.decay_rate);
  visit("smoothing", recipe.smoothing);
  visit("clip_grad", recipe.clip_grad);
  visit("seed", recipe.seed);
  visit("precision", recipe.precision);
  visit("cast_policy", recipe.cast_policy);
  visit("cast_policy_file", recipe.cast_policy_file);
}

template <class T>
Json field_to_json(const T& value) {
  return value;
}
template <class T>
Json field_to_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json fields_to_json(const Recipe& recipe) {
  Json json;
  for_each_field(recipe, [&](const char* name, const auto& field) { json[name] = field_to_json(field); });
  return json;
}

void check_known(std::string_view kind, const std::string& name, const std::vector<std::string>& known) {
  check(std::find(known.begin(), known.end(), name) != known.end(), "train", "{}", unknown_name(kind, name, known));
}

/// The factor rises in equal steps to 1 before `schedule` takes over.
nn::Schedule with_warmup(nn::Schedule schedule, int64_t warmup_steps) {
  if (warmup_steps == 0) {
    return schedule;
  }
  return [schedule = std::move(schedule), warmup_steps](int64_t step) {
    const double rise = std::min(1.0, static_cast<double>(step + 1) / static_cast<double>(warmup_steps));
    return rise * schedule(step);
  };
}

}  // namespace

std::vector<std::string> optimizer_names() {
  return {"adamw", "sgd", "nesterov"};
}

std::vector<std::string> schedule_names() {
  return {"onecycle", "cosine", "step", "constant"};
}

namespace {

nn::NormPolicy policy_of(const Recipe& recipe) {
  return recipe.norm_policy.empty() ? nn::NormPolicy{}
                                    : nn::parse_norm_policy(recipe.norm_policy, recipe.norm_policy_file);
}

}  // namespace

void check_norm_policy(const Recipe& recipe) {
  if (!recipe.norm_policy.empty()) {
    models::create_model(recipe.model, {.norm_policy = policy_of(recipe), .initialize = false});
  }
}

std::string model_label(const std::string& model, const Recipe& recipe) {
  return recipe.conv_layer == Recipe{}.conv_layer ? model : fmt::format("{} ({})", model, recipe.conv_layer);
}

std::string norm_label(const std::string& norm, const Recipe& recipe) {
  return recipe.norm_policy.empty() ? norm : fmt::format("{} + {}", norm, recipe.norm_policy_file);
}

void check_recipe(const Recipe& recipe) {
  check_known("model", recipe.model, models::model_names());
  if (!recipe.norm.empty()) {
    nn::parse_norm(recipe.norm);
  }
  policy_of(recipe);
  nn::check_conv_layer(recipe.conv_layer);
  precision_of(recipe);
  check_known("dataset", recipe.dataset, data::dataset_names());
  check(recipe.dataset != "shapes" || recipe.data_dir.empty(), "train",
        "data-dir: expected none for dataset 'shapes', which is generated, got '{}'", recipe.data_dir);
  check_known("optimizer", recipe.opt, optimizer_names());
  check_known("schedule", recipe.sched, schedule_names());
  check_range("train", "img-size", recipe.image_size, ranges::kImageSize);
  check_range("train", "random-crop", recipe.crop_padding, ranges::kCropPadding);
  check(recipe.crop_padding <= recipe.image_size, "train", "random-crop: expected at most the {} of img-size, got {}",
        recipe.image_size, recipe.crop_padding);
  check_range("train", "batch-size", recipe.batch_size, ranges::kBatchSize);
  check_range("train", "epochs", recipe.epochs, ranges::kEpochs);
  check_range("train", "images", recipe.images, ranges::kImages);
  check_range("train", "test-images", recipe.test_images, ranges::kImages);
  if (recipe.patch_size) {
    check_range("train", "patch-size", *recipe.patch_size, ranges::kPatchSize);
  }
  if (recipe.layer_scale) {
    check_range("train", "layer-scale", *recipe.layer_scale, ranges::kLayerScale);
  }
  check_range("train", "drop-path", recipe.drop_path, ranges::kDropPath);
  check_range("train", "lr", recipe.lr, ranges::kLr);
  check_range("train", "weight-decay", recipe.weight_decay, ranges::kWeightDecay);
  check_range("train", "momentum", recipe.momentum, ranges::kMomentum);
  check_range("train", "warmup-epochs", recipe.warmup_epochs, ranges::kWarmupEpochs);
  check_range("train", "decay-epochs", recipe.decay_epochs, ranges::kDecayEpochs);
  check_range("train", "decay-rate", recipe.decay_rate, ranges::kDecayRate);
  check_range("train", "smoothing", recipe.smoothing, ranges::kSmoothing);
  check_range("train", "clip-grad", recipe.clip_grad, ranges::kClipGrad);
}

void check_training(const Recipe& recipe) {
  check_recipe(recipe);
  const std::vector<std::string> precisions = training_precision_names();
  check(std::find(precisions.begin(), precisions.end(), recipe.precision) != precisions.end(), "train",
        "precision: expected {}, got {}", fmt::join(precisions, ", "), recipe.precision);
}

Precision precision_of(const Recipe& recipe) {
  return parse_precision(recipe.precision, recipe.cast_policy, recipe.cast_policy_file);
}

Recipe in_full_precision(const Recipe& recipe) {
  Recipe wide = recipe;
  wide.precision = precision_of(recipe).dtype == DType::float64 ? "float64" : "float32";
  wide.cast_policy.clear();
  wide.cast_policy_file.clear();
  return wide;
}

std::string to_json(const Recipe& recipe) {
  return data::json_text(fields_to_json(recipe));
}

Recipe recipe_from_json(const std::string& text, const std::string& where) {
  const nlohmann::json json = data::parse_json(where, "the recipe", text);
  check(json.is_object(), where, "expected a recipe, got {}", data::json_excerpt(json));
  Recipe recipe;
  for_each_field(recipe, [&]<class T>(const char* name, T& field) {
    if (json.contains(name)) {
      field = data::json_as<T>(where, name, json[name]);
    }
  });
  return recipe;
}

std::vector<std::string> differences(const Recipe& before, const Recipe& after) {
  const Json a = fields_to_json(before);
  const Json b = fields_to_json(after);
  std::vector<std::string> lines;
  for (const auto& [name, value] : a.items()) {
    if (value != b[name]) {
      lines.push_back(fmt::format("{} {} → {}", name, data::json_text(value), data::json_text(b[name])));
    }
  }
  return lines;
}

std::shared_ptr<const data::Dataset> make_dataset(const Recipe& recipe, data::Split split) {
  return data::make_dataset(recipe.dataset,
                            {.split = split, .folder = recipe.data_dir, .image_size = recipe.image_size});
}

data::Loader make_train_loader(const Recipe& recipe, std::shared_ptr<const data::Dataset> dataset, int workers,
                               int64_t first_step) {
  const data::Transform transform(dataset->info(), {.image_size = recipe.image_size,
                                                    .augment = recipe.crop_padding > 0 || recipe.flip,
                                                    .crop_padding = recipe.crop_padding,
                                                    .flip = recipe.flip});
  return {std::move(dataset),
          transform,
          {.batch_size = recipe.batch_size,
           .shuffle = true,
           .drop_last = true,
           .epochs = recipe.epochs,
           .total_images = recipe.images,
           .seed = recipe.seed,
           .first_step = first_step,
           .num_workers = workers,
           .format = recipe.channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous}};
}

data::Loader make_test_loader(const Recipe& recipe, std::shared_ptr<const data::Dataset> dataset, int workers) {
  const data::Transform transform(dataset->info(), {.image_size = recipe.image_size});
  const int64_t size = dataset->info().size;
  return {std::move(dataset),
          transform,
          {.batch_size = recipe.batch_size,
           .total_images = recipe.test_images > 0 ? std::min(recipe.test_images, size) : size,
           .num_workers = workers,
           .format = recipe.channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous}};
}

std::shared_ptr<nn::Module> make_model(const Recipe& recipe, int64_t num_classes) {
  std::optional<int64_t> patch_size = recipe.patch_size;
  if (!patch_size && models::model_takes(recipe.model, "patch_size") && recipe.image_size < kSmallImage) {
    patch_size = 2;
  }
  auto model = models::create_model(recipe.model, {.num_classes = num_classes,
                                                   .norm = recipe.norm,
                                                   .conv_layer = recipe.conv_layer,
                                                   .small_stem = recipe.small_stem,
                                                   .patch_size = patch_size,
                                                   .zero_init_last = recipe.zero_init_last,
                                                   .layer_scale = recipe.layer_scale,
                                                   .drop_path = recipe.drop_path,
                                                   .seed = recipe.seed,
                                                   .norm_policy = policy_of(recipe)});
  if (nn::has_lazy_norms()) {
    nn::make_lazy_parameters(*model, {1, 3, recipe.image_size, recipe.image_size});
  }
  if (recipe.channels_last) {
    model->to(MemoryFormat::channels_last);
  }
  convert_model(*model, precision_of(recipe));
  return model;
}

std::unique_ptr<nn::Optimizer> make_optimizer(const Recipe& recipe, const nn::Module& model) {
  auto groups = nn::parameter_groups(model, recipe.weight_decay);
  if (recipe.opt == "adamw") {
    return std::make_unique<nn::AdamW>(std::move(groups), nn::AdamWOptions{.lr = recipe.lr, .beta1 = recipe.momentum});
  }
  check_known("optimizer", recipe.opt, optimizer_names());
  return std::make_unique<nn::Sgd>(
      std::move(groups),
      nn::SgdOptions{.lr = recipe.lr, .momentum = recipe.momentum, .nesterov = recipe.opt == "nesterov"});
}

Schedules make_schedules(const Recipe& recipe, int64_t steps, int64_t steps_per_epoch) {
  const auto in_steps = [&](double epochs) {
    return static_cast<int64_t>(std::llround(epochs * static_cast<double>(steps_per_epoch)));
  };
  const int64_t warmup_steps = std::min(in_steps(recipe.warmup_epochs), steps - 1);
  if (recipe.sched == "onecycle") {
    nn::OneCycleOptions options{.steps = steps};
    if (warmup_steps > 0) {
      options.pct_start = static_cast<double>(warmup_steps) / static_cast<double>(steps);
    }
    return {.lr = nn::one_cycle_schedule(options), .momentum = nn::one_cycle_momentum(options)};
  }
  if (recipe.sched == "cosine") {
    return {.lr = nn::cosine_schedule({.steps = steps, .warmup_steps = warmup_steps}), .momentum = {}};
  }
  if (recipe.sched == "step") {
    const int64_t every = std::max<int64_t>(in_steps(recipe.decay_epochs), 1);
    return {.lr = with_warmup(nn::step_schedule({.milestones = {}, .every = every, .gamma = recipe.decay_rate}),
                              warmup_steps),
            .momentum = {}};
  }
  check_known("schedule", recipe.sched, schedule_names());
  return {.lr = with_warmup(nn::constant_schedule(), warmup_steps), .momentum = {}};
}

}  // namespace norma::train

#include "train/recipe.h"

#include "base/error.h"
#include "core/device_functions.h"
#include "data/dataset.h"
#include "data/json.h"
#include "nn/cast_policy.h"
#include "nn/conv.h"
#include "nn/norm/factory.h"
#include "nn/norm/policy.h"
#include "train/recipe_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <utility>

namespace norma::train {

namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json to_json_value(const T& value) {
  return value;
}
template <class T>
Json to_json_value(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

/// The key of a file's name.
std::string file_key(const RecipeOption& option) {
  return option.key + "_file";
}

/// The option, or its default for this model and size of images.
std::optional<int64_t> patch_size_of(const Recipe& recipe) {
  return recipe.patch_size ? recipe.patch_size : models::default_patch_size(recipe.model, recipe.image_size);
}

constexpr const char* kTrain = "train";

data::RandomResizedCropOptions resized_crop(const Recipe& recipe) {
  return {.scale = {recipe.scale[0], recipe.scale[1]}, .ratio = {recipe.ratio[0], recipe.ratio[1]}};
}

data::RandomErasingOptions erasing(const Recipe& recipe) {
  return {.probability = recipe.reprob,
          .mode = data::erasing_mode("train: remode", recipe.remode),
          .count = recipe.recount};
}

data::ResizeFilter filter_of(const std::string& interpolation) {
  return interpolation == "bicubic" ? data::ResizeFilter::bicubic : data::ResizeFilter::bilinear;
}

}  // namespace

nn::NormPolicy norm_policy_of(const Recipe& recipe) {
  nn::NormPolicy policy = recipe.norm_policy.empty()
                              ? nn::NormPolicy{}
                              : nn::parse_norm_policy(recipe.norm_policy, recipe.norm_policy_file);
  const auto* const chosen = std::ranges::find(nn::kNormPlacements, recipe.norm_placement,
                                               [](nn::NormPlacement one) { return nn::to_string(one); });
  if (chosen != nn::kNormPlacements.end()) {
    policy.placement = *chosen;
  }
  return policy;
}

void check_norm_policy(const Recipe& recipe) {
  if (!recipe.norm_policy.empty() || !recipe.norm_placement.empty()) {
    models::ModelOptions options{.norm_policy = norm_policy_of(recipe), .initialize = false};
    if (models::model_takes(recipe.model, "global_pool")) {  // decides which norms there are
      options.patch_size = patch_size_of(recipe);
      options.image_size = recipe.image_size;
      options.global_pool = recipe.global_pool;
      options.qk_norm = recipe.qk_norm;
    }
    models::create_model(recipe.model, options);
  }
}

std::string model_label(const std::string& model, const Recipe& recipe) {
  return recipe.conv_layer == Recipe{}.conv_layer ? model : fmt::format("{} ({})", model, recipe.conv_layer);
}

std::string norm_label(const std::string& norm, const Recipe& recipe) {
  return recipe.norm_policy.empty() ? norm : fmt::format("{} + {}", norm, recipe.norm_policy_file);
}

bool leaves_patches_open(const Recipe& recipe) {
  return !recipe.patch_size && models::network_of(recipe.model) == recipe.model &&
         models::model_takes(recipe.model, "global_pool");
}

void check_recipe(const Recipe& recipe, bool with_weights) {
  for (const RecipeOption& option : recipe_options()) {
    option.check_value(recipe);
  }
  if (!recipe.norm.empty()) {
    nn::parse_norm(recipe.norm);
  }
  if (!recipe.from_norm.empty()) {
    nn::parse_norm(recipe.from_norm);
  }
  norm_policy_of(recipe);
  nn::check_conv_layer(recipe.conv_layer);
  precision_of(recipe);
  check(recipe.dataset != "shapes" || recipe.data_dir.empty(), "train",
        "data-dir: expected none for dataset 'shapes', which is generated, got '{}'", recipe.data_dir);
  check(recipe.crop_padding <= recipe.image_size, "train", "random-crop: expected at most the {} of img-size, got {}",
        recipe.image_size, recipe.crop_padding);
  check_augmentation(recipe);
  const std::optional<int64_t> patch_size = patch_size_of(recipe);
  if (patch_size && !(with_weights && leaves_patches_open(recipe))) {
    models::check_image_size("train", recipe.model, recipe.image_size, *patch_size);
  }
  check_optimization(recipe);
}

Precision precision_of(const Recipe& recipe) {
  Precision precision = parse_precision(recipe.precision, recipe.cast_policy, recipe.cast_policy_file);
  check(recipe.cast.empty() || precision.autocast, "train",
        "cast: expected precision amp_bfloat16 or amp_float16, which it is for, got {}", recipe.precision);
  for (const std::string& cast : recipe.cast) {
    nn::set_cast(precision.policy, cast);
  }
  return precision;
}

Recipe in_full_precision(const Recipe& recipe) {
  Recipe wide = recipe;
  wide.precision = precision_of(recipe).dtype == DType::float64 ? "float64" : "float32";
  wide.cast_policy.clear();
  wide.cast_policy_file.clear();
  wide.cast.clear();
  return wide;
}

std::string to_json(const Recipe& recipe) {
  Json json;
  for (const RecipeOption& option : recipe_options()) {
    json[option.key] = std::visit([&](const auto& field) { return to_json_value(recipe.*(field.at)); }, option.field);
    if (const auto* file = std::get_if<FileField>(&option.field)) {
      json[file_key(option)] = recipe.*(file->name);
    }
  }
  return data::json_text(json);
}

Recipe recipe_from_json(const std::string& text, const std::string& where) {
  const nlohmann::json json = data::parse_json(where, "the recipe", text);
  check(json.is_object(), where, "expected a recipe, got {}", data::json_excerpt(json));
  Recipe recipe;
  const auto read = [&]<class T>(const std::string& key, T& value) {
    if (json.contains(key)) {
      value = data::json_as<T>(where, key, json[key]);
    }
  };
  for (const RecipeOption& option : recipe_options()) {
    std::visit([&](const auto& field) { read(option.key, recipe.*(field.at)); }, option.field);
    if (const auto* file = std::get_if<FileField>(&option.field)) {
      read(file_key(option), recipe.*(file->name));
      if (std::string& name = recipe.*(file->name); name.empty() && !(recipe.*(file->at)).empty()) {
        name = "the policy";  // for errors
      }
    }
  }
  if (recipe.qk_norm == kNone) {  // as versions before had it
    recipe.qk_norm.clear();
  }
  return recipe;
}

std::shared_ptr<const data::Dataset> make_dataset(const Recipe& recipe, data::Split split) {
  const bool is_cropped = split == data::Split::train && !recipe.scale.empty();
  const int64_t enough = recipe.decode != "scaled" ? 0
                         : is_cropped              ? recipe.image_size
                                                   : data::resized_side(recipe.image_size, recipe.crop_pct);
  auto dataset = data::make_dataset(recipe.dataset, {.split = split,
                                                     .folder = recipe.data_dir,
                                                     .image_size = recipe.image_size,
                                                     .skip_bad_images = recipe.skip_bad_images,
                                                     .exif_orientation = recipe.exif_orientation,
                                                     .enough = enough});
  if (!recipe.classes.empty()) {
    dataset = data::class_subset(dataset, recipe.classes);
  }
  const bool is_part = split == data::Split::train && recipe.train_images > 0;
  return is_part ? data::random_subset(std::move(dataset), recipe.train_images) : dataset;
}

namespace {

bool travel_as_bytes(Device device) {
  return device_functions.table("loader", device).is_far;
}

}  // namespace

data::Loader make_train_loader(const Recipe& recipe, std::shared_ptr<const data::Dataset> dataset, int workers,
                               int64_t first_step, Device device, const data::LoaderPart& part) {
  const data::DatasetInfo& info = dataset->info();
  check(recipe.batch_size <= info.size, "train",
        "batch-size: expected at most the {} training images of {} (option -b), got {}", info.size, info.name,
        recipe.batch_size);
  check(recipe.images == 0 || recipe.images >= recipe.batch_size, "train",
        "images: expected at least a batch of {} (option -b), got {}", recipe.batch_size, recipe.images);
  const data::Transform transform(dataset->info(), train_transform(recipe));
  return {std::move(dataset),
          transform,
          {.batch_size = recipe.batch_size,
           .shuffle = true,
           .drop_last = true,
           .epochs = recipe.epochs,
           .total_images = recipe.images,
           .repeats = std::max<int64_t>(recipe.aug_repeats, 1),
           .seed = recipe.seed,
           .mix = mix_options(recipe),
           .first_step = first_step,
           .num_workers = workers,
           .prefetch = prefetched_batches(workers),
           .format = recipe.channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous,
           .bytes = travel_as_bytes(device) && recipe.reprob == 0 && (part.parts == 1 || !mix_options(recipe).any()),
           .part = part}};
}

std::string norm_of(const Recipe& recipe) {
  return recipe.norm.empty() ? models::own_norm(recipe.model) : recipe.norm;
}

int64_t test_images_of(const Recipe& recipe, const data::Dataset& dataset) {
  const int64_t size = dataset.info().size;
  return recipe.test_images > 0 ? std::min(recipe.test_images, size) : size;
}

data::Loader make_test_loader(const Recipe& recipe, std::shared_ptr<const data::Dataset> dataset, int workers,
                              Device device, const data::LoaderPart& part) {
  const data::Transform transform(dataset->info(), test_transform(recipe));
  const int64_t count = test_images_of(recipe, *dataset);
  const bool takes_part = dataset->info().sorted_by_label && count < dataset->info().size;
  return {std::move(dataset),
          transform,
          {.batch_size = recipe.batch_size,
           .shuffle = takes_part,  // it must have images of all classes; by seed 0 always the same
           .total_images = count,
           .num_workers = workers,
           .prefetch = prefetched_batches(workers),
           .format = recipe.channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous,
           .bytes = travel_as_bytes(device),
           .part = part}};
}

models::ModelOptions model_options(const Recipe& recipe) {
  return {.norm = recipe.norm,
          .conv_layer = recipe.conv_layer,
          .small_stem = recipe.small_stem,
          .patch_size = patch_size_of(recipe),
          .zero_init_last = recipe.zero_init_last,
          .layer_scale = recipe.layer_scale,
          .drop_path = recipe.drop_path,
          .grad_checkpointing = recipe.grad_checkpointing,
          .image_size = recipe.image_size,
          .global_pool = recipe.global_pool,
          .qk_norm = recipe.qk_norm,
          .qkv_bias = recipe.qkv_bias,
          .pos_drop = recipe.pos_drop,
          .seed = recipe.seed,
          .norm_policy = norm_policy_of(recipe)};
}

std::shared_ptr<nn::Module> make_model(const Recipe& recipe, int64_t num_classes, bool initialize) {
  models::ModelOptions options = model_options(recipe);
  options.num_classes = num_classes;
  options.initialize = initialize;
  const auto model = models::create_model(recipe.model, options);
  if (nn::has_lazy_norms()) {
    nn::make_lazy_parameters(*model, {1, 3, recipe.image_size, recipe.image_size});
  }
  if (recipe.channels_last) {
    model->to(MemoryFormat::channels_last);
  }
  convert_model(*model, precision_of(recipe));
  return model;
}

std::vector<std::string> interpolation_names() {
  return {"bilinear", "bicubic"};
}

std::vector<std::string> decode_names() {
  return {"exact", "scaled"};
}

std::vector<std::string> train_interpolation_names() {
  return {"bilinear", "bicubic", "random"};
}

void check_augmentation(const Recipe& recipe) {
  check(recipe.scale.empty() || recipe.scale.size() == 2, kTrain, "scale: expected two numbers, got {}",
        recipe.scale.size());
  check(recipe.ratio.size() == 2, kTrain, "ratio: expected two numbers, got {}", recipe.ratio.size());
  data::check_random_resized_crop(
      kTrain, {.scale = recipe.scale.empty() ? data::Interval{1, 1} : data::Interval{recipe.scale[0], recipe.scale[1]},
               .ratio = {recipe.ratio[0], recipe.ratio[1]}});
  check(recipe.scale.empty() || recipe.crop_padding == 0, kTrain, "random-crop: expected 0 beside scale, got {}",
        recipe.crop_padding);
  check(!recipe.flip || recipe.hflip == 0, kTrain,
        "hflip: expected 0 beside flip, which mirrors half of the images, got {}", recipe.hflip);
  data::parse_color_jitter("train: color-jitter", recipe.color_jitter);
  if (!recipe.aa.empty()) {
    data::parse_policy("train: aa", recipe.aa);
  }
  data::check_random_erasing(kTrain, erasing(recipe));
  data::check_mix(kTrain, mix_options(recipe));
  check(!mix_options(recipe).any() || recipe.batch_size > 1, kTrain,
        "batch-size: expected at least 2 to mix images of a batch, got {}", recipe.batch_size);
}

data::TransformOptions train_transform(const Recipe& recipe) {
  data::TransformOptions options{.image_size = recipe.image_size,
                                 .augment = recipe.crop_padding > 0 || recipe.flip,
                                 .crop_padding = recipe.crop_padding,
                                 .flip = recipe.flip,
                                 .crop_pct = recipe.crop_pct,
                                 .filter = filter_of(recipe.train_interpolation),
                                 .random_filter = recipe.train_interpolation == "random"};
  data::AugmentOptions& augmentation = options.augmentation;
  if (!recipe.scale.empty()) {
    augmentation.resized_crop = resized_crop(recipe);
  }
  augmentation.hflip = recipe.hflip;
  augmentation.vflip = recipe.vflip;
  if (!recipe.aa.empty()) {
    augmentation.policy = data::parse_policy("train: aa", recipe.aa);
  }
  augmentation.color_jitter = data::parse_color_jitter("train: color-jitter", recipe.color_jitter);
  augmentation.erasing = erasing(recipe);
  return options;
}

data::TransformOptions test_transform(const Recipe& recipe) {
  return {.image_size = recipe.image_size, .crop_pct = recipe.crop_pct, .filter = filter_of(recipe.interpolation)};
}

data::MixOptions mix_options(const Recipe& recipe) {
  return {.mixup_alpha = recipe.mixup,
          .cutmix_alpha = recipe.cutmix,
          .probability = recipe.mixup_prob,
          .switch_probability = recipe.mixup_switch_prob};
}

std::string augmentation_text(const Recipe& recipe) {
  std::vector<std::string> parts;
  const auto add = [&](bool on, std::string text) {
    if (on) {
      parts.push_back(std::move(text));
    }
  };
  add(recipe.crop_padding > 0, fmt::format("crop by {} pixels", recipe.crop_padding));
  add(!recipe.scale.empty(), fmt::format("resized crop of {} of the area", fmt::join(recipe.scale, " to ")));
  add(recipe.flip, "flip");
  add(recipe.hflip > 0, fmt::format("hflip {}", recipe.hflip));
  add(recipe.vflip > 0, fmt::format("vflip {}", recipe.vflip));
  add(!recipe.aa.empty(), recipe.aa);
  add(!recipe.color_jitter.empty(), fmt::format("color jitter {}", recipe.color_jitter));
  add(recipe.reprob > 0, fmt::format("erasing {}", recipe.reprob));
  add(recipe.mixup > 0, fmt::format("mixup {}", recipe.mixup));
  add(recipe.cutmix > 0, fmt::format("cutmix {}", recipe.cutmix));
  add(recipe.aug_repeats > 1, fmt::format("each image {} times", recipe.aug_repeats));
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace norma::train

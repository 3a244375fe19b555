#include "train/recipe.h"

#include "core/error.h"
#include "data/json.h"
#include "nn/cast_policy.h"
#include "nn/conv_factory.h"
#include "nn/norm/factory.h"
#include "train/augmentation.h"
#include "train/ranges.h"
#include "train/recipe_checks.h"

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

namespace norma::train {

namespace {

/// Images below this are too small for ConvNeXt's patches of 4 pixels: four stages would leave one pixel of 32.
constexpr int64_t kSmallImage = 64;
constexpr int64_t kPatchSize = 4;  ///< of ConvNeXt, where nothing else is said

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
  visit("skip_bad_images", recipe.skip_bad_images);
  visit("image_size", recipe.image_size);
  visit("crop_padding", recipe.crop_padding);
  visit("flip", recipe.flip);
  visit("scale", recipe.scale);
  visit("ratio", recipe.ratio);
  visit("hflip", recipe.hflip);
  visit("vflip", recipe.vflip);
  visit("color_jitter", recipe.color_jitter);
  visit("aa", recipe.aa);
  visit("reprob", recipe.reprob);
  visit("remode", recipe.remode);
  visit("recount", recipe.recount);
  visit("train_interpolation", recipe.train_interpolation);
  visit("interpolation", recipe.interpolation);
  visit("crop_pct", recipe.crop_pct);
  visit("mixup", recipe.mixup);
  visit("cutmix", recipe.cutmix);
  visit("mixup_prob", recipe.mixup_prob);
  visit("mixup_switch_prob", recipe.mixup_switch_prob);
  visit("aug_repeats", recipe.aug_repeats);
  visit("batch_size", recipe.batch_size);
  visit("epochs", recipe.epochs);
  visit("images", recipe.images);
  visit("test_images", recipe.test_images);
  visit("channels_last", recipe.channels_last);
  visit("opt", recipe.opt);
  visit("lr", recipe.lr);
  visit("weight_decay", recipe.weight_decay);
  visit("norm_weight_decay", recipe.norm_weight_decay);
  visit("bias_weight_decay", recipe.bias_weight_decay);
  visit("layer_decay", recipe.layer_decay);
  visit("grad_accum_steps", recipe.grad_accum_steps);
  visit("momentum", recipe.momentum);
  visit("opt_betas", recipe.opt_betas);
  visit("opt_eps", recipe.opt_eps);
  visit("sched", recipe.sched);
  visit("lr_base", recipe.lr_base);
  visit("lr_base_size", recipe.lr_base_size);
  visit("lr_base_scale", recipe.lr_base_scale);
  visit("warmup_epochs", recipe.warmup_epochs);
  visit("warmup_lr", recipe.warmup_lr);
  visit("warmup_prefix", recipe.warmup_prefix);
  visit("min_lr", recipe.min_lr);
  visit("cooldown_epochs", recipe.cooldown_epochs);
  visit("decay_epochs", recipe.decay_epochs);
  visit("decay_milestones", recipe.decay_milestones);
  visit("decay_rate", recipe.decay_rate);
  visit("sched_on_updates", recipe.sched_on_updates);
  visit("smoothing", recipe.smoothing);
  visit("bce_loss", recipe.bce_loss);
  visit("bce_target_thresh", recipe.bce_target_thresh);
  visit("clip_grad", recipe.clip_grad);
  visit("clip_mode", recipe.clip_mode);
  visit("skip_nonfinite", recipe.skip_nonfinite);
  visit("max_nonfinite", recipe.max_nonfinite);
  visit("model_ema", recipe.model_ema);
  visit("model_ema_decay", recipe.model_ema_decay);
  visit("model_ema_warmup", recipe.model_ema_warmup);
  visit("seed", recipe.seed);
  visit("precision", recipe.precision);
  visit("cast_policy", recipe.cast_policy);
  visit("cast_policy_file", recipe.cast_policy_file);
  visit("cast", recipe.cast);
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

/// The option, or what holds without it.
std::optional<int64_t> patch_size_of(const Recipe& recipe) {
  if (!recipe.patch_size && models::model_takes(recipe.model, "patch_size") && recipe.image_size < kSmallImage) {
    return 2;
  }
  return recipe.patch_size;
}

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
  check_range("train", "img-size", recipe.image_size, ranges::kImageSize);
  check_range("train", "random-crop", recipe.crop_padding, ranges::kCropPadding);
  check(recipe.crop_padding <= recipe.image_size, "train", "random-crop: expected at most the {} of img-size, got {}",
        recipe.image_size, recipe.crop_padding);
  check_augmentation(recipe);
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
  const int64_t patch_size = patch_size_of(recipe).value_or(kPatchSize);
  const int64_t least = models::least_image_size(recipe.model, patch_size);
  check(recipe.image_size >= least, "train", "img-size: expected at least {} for {} with a patch-size of {}, got {}",
        least, recipe.model, patch_size, recipe.image_size);
  check_optimisation(recipe);
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
  return data::make_dataset(recipe.dataset, {.split = split,
                                             .folder = recipe.data_dir,
                                             .image_size = recipe.image_size,
                                             .skip_bad_images = recipe.skip_bad_images});
}

data::Loader make_train_loader(const Recipe& recipe, std::shared_ptr<const data::Dataset> dataset, int workers,
                               int64_t first_step) {
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
           .format = recipe.channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous}};
}

data::Loader make_test_loader(const Recipe& recipe, std::shared_ptr<const data::Dataset> dataset, int workers) {
  const data::Transform transform(dataset->info(), test_transform(recipe));
  const int64_t size = dataset->info().size;
  const int64_t count = recipe.test_images > 0 ? std::min(recipe.test_images, size) : size;
  const bool sorted = dataset->info().sorted_by_label;
  return {std::move(dataset),
          transform,
          {.batch_size = recipe.batch_size,
           .shuffle = sorted && count < size,  // a part has images of all classes; always the same ones, by seed 0
           .total_images = count,
           .num_workers = workers,
           .prefetch = prefetched_batches(workers),
           .format = recipe.channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous}};
}

std::shared_ptr<nn::Module> make_model(const Recipe& recipe, int64_t num_classes) {
  auto model = models::create_model(recipe.model, {.num_classes = num_classes,
                                                   .norm = recipe.norm,
                                                   .conv_layer = recipe.conv_layer,
                                                   .small_stem = recipe.small_stem,
                                                   .patch_size = patch_size_of(recipe),
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

}  // namespace norma::train

#include "train/augmentation.h"

#include "base/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace norma::train {

namespace {

constexpr const char* kOp = "train";

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

std::vector<std::string> interpolation_names() {
  return {"bilinear", "bicubic"};
}

std::vector<std::string> train_interpolation_names() {
  return {"bilinear", "bicubic", "random"};
}

void check_augmentation(const Recipe& recipe) {
  check(recipe.scale.empty() || recipe.scale.size() == 2, kOp, "scale: expected two numbers, got {}",
        recipe.scale.size());
  check(recipe.ratio.size() == 2, kOp, "ratio: expected two numbers, got {}", recipe.ratio.size());
  data::check_random_resized_crop(
      kOp, {.scale = recipe.scale.empty() ? data::Interval{1, 1} : data::Interval{recipe.scale[0], recipe.scale[1]},
            .ratio = {recipe.ratio[0], recipe.ratio[1]}});
  check(recipe.scale.empty() || recipe.crop_padding == 0, kOp, "random-crop: expected 0 beside scale, got {}",
        recipe.crop_padding);
  check(!recipe.flip || recipe.hflip == 0, kOp,
        "hflip: expected 0 beside flip, which mirrors half of the images, got {}", recipe.hflip);
  data::parse_color_jitter("train: color-jitter", recipe.color_jitter);
  if (!recipe.aa.empty()) {
    data::parse_policy("train: aa", recipe.aa);
  }
  data::check_random_erasing(kOp, erasing(recipe));
  data::check_mix(kOp, mix_options(recipe));
  check(!mix_options(recipe).any() || recipe.batch_size > 1, kOp,
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

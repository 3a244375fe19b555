#include "data/augment/color.h"
#include "data/augment/geometry.h"
#include "data/augment/policy.h"
#include "data/augment/rectangles.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/pictures.h"
#include "data/resize.h"
#include "data/transform.h"
#include "error_text.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::data;
using norma::test::error_of;
using norma::test::picture;

namespace {

DatasetInfo info_of(int64_t channels, int64_t height, int64_t width) {
  DatasetInfo info;
  info.name = "test";
  info.channels = channels;
  info.height = height;
  info.width = width;
  info.mean.assign(static_cast<size_t>(channels), 0.4F);
  info.std.assign(static_cast<size_t>(channels), 0.5F);
  return info;
}

std::vector<float> apply_to(const Transform& transform, const Image& image, const AugmentationKey& key) {
  const int64_t size = transform.options().image_size;
  std::vector<float> output(static_cast<size_t>(transform.options().channels * size * size), -99.0F);
  transform.apply(image, key, output.data(), {size * size, size, 1});
  return output;
}

/// (byte / 255 - 0.4) / 0.5 by planes; a grey image fills three of them.
std::vector<float> normalized(const Image& image) {
  std::vector<float> output;
  for (int64_t c = 0; c < 3; ++c) {
    for (int64_t i = 0; i < image.height * image.width; ++i) {
      const uint8_t byte = image.pixels[static_cast<size_t>(i * image.channels + (image.channels == 3 ? c : 0))];
      output.push_back((static_cast<float>(byte) / 255 - 0.4F) / 0.5F);
    }
  }
  return output;
}

const AugmentOptions kAll = {.resized_crop = RandomResizedCropOptions{.scale = {0.3, 1}},
                             .hflip = 0.5,
                             .vflip = 0.3,
                             .policy = parse_rand_augment("test", "rand-m9-mstd0.5-inc1-p1"),
                             .color_jitter = {.brightness = 0.4, .contrast = 0.3, .saturation = 0.2, .hue = 0.1},
                             .erasing = {.probability = 0.5, .mode = ErasingMode::pixel}};

}  // namespace

TEST_CASE("transform: the augmentation is its parts, one after another") {
  for (const int64_t channels : {1, 3}) {
    const Transform transform(info_of(channels, 0, 0), {.image_size = 24, .random_filter = true, .augmentation = kAll});
    const Image image = picture(31, 40, channels);
    for (int64_t index = 0; index < 40; ++index) {
      const AugmentationKey key{.seed = 3, .epoch = 2, .index = index};
      Draw at_crop(key, DrawFor::crop);
      const auto filter = at_crop.chance(0.5) ? ResizeFilter::bilinear : ResizeFilter::bicubic;
      const Rectangle window = draw_resized_crop(at_crop, 31, 40, *kAll.resized_crop);
      Image bytes = resize(crop(image, window.top, window.left, window.height, window.width), 24, 24, filter);
      Draw at_flip(key, DrawFor::flip);
      if (at_flip.chance(0.5)) {
        bytes = hflip(bytes);
      }
      if (at_flip.chance(0.3)) {
        bytes = vflip(bytes);
      }
      Draw at_policy(key, DrawFor::policy);
      bytes = Policy(*kAll.policy, {.fill = {102, 102, 102}}).apply(bytes, at_policy);
      Draw at_jitter(key, DrawFor::color_jitter);
      bytes = apply(draw_color_jitter(at_jitter, kAll.color_jitter), bytes);
      std::vector<float> expected = normalized(bytes);
      Draw at_erasing(key, DrawFor::erasing);
      random_erasing(expected.data(), {3, 24, 24}, {576, 24, 1}, kAll.erasing, at_erasing);
      CHECK((apply_to(transform, image, key) == expected));
    }
  }
}

TEST_CASE("transform: shifts come before the ops of a policy, and do not depend on them") {
  const TransformOptions shifts{.image_size = 10, .augment = true, .crop_padding = 3};
  TransformOptions with_policy = shifts;
  with_policy.augmentation.policy = parse_rand_augment("test", "rand-p0");  // draws, and does nothing
  TransformOptions inverted = shifts;
  inverted.augmentation.vflip = 1;
  const DatasetInfo info = info_of(1, 8, 7);
  const Image image = picture(8, 7, 1);
  for (int64_t index = 0; index < 50; ++index) {
    const AugmentationKey key{.seed = 1, .epoch = 0, .index = index};
    const std::vector<float> plain = apply_to(Transform(info, shifts), image, key);
    CHECK((apply_to(Transform(info, with_policy), image, key) == plain));
    const std::vector<float> turned = apply_to(Transform(info, inverted), image, key);
    for (size_t y = 0; y < 30; ++y) {
      const size_t from = y / 10 * 10 + 9 - y % 10;
      CHECK(std::equal(plain.begin() + static_cast<int64_t>(from * 10),
                       plain.begin() + static_cast<int64_t>(from * 10) + 10,
                       turned.begin() + static_cast<int64_t>(y * 10)));
    }
  }
}

TEST_CASE("transform: what a policy brings in is the mean, or black") {
  const auto corner = [](const Policy::Kind& kind) {
    std::vector<float> values;
    const Transform transform(info_of(3, 8, 8), {.image_size = 8, .augmentation = {.policy = kind}});
    for (int64_t index = 0; index < 400; ++index) {
      const AugmentationKey key{.seed = 9, .epoch = 0, .index = index};
      Draw draw(key, DrawFor::policy);
      const auto steps = Policy(kind, {}).draw(draw, 8, 8);
      if (steps.size() == 1 && steps[0].op == PolicyOp::translate_x && std::abs(steps[0].argument) >= 1) {
        const std::vector<float> row = apply_to(transform, picture(8, 8, 3), key);
        values.push_back(row[steps[0].argument < 0 ? 0 : 7]);
      }
    }
    return values;
  };
  const std::vector<float> mean = corner(parse_rand_augment("test", "rand-p1-n1"));
  CHECK(mean.size() > 10);
  for (const float value : mean) {
    CHECK(std::abs(value) < 0.004F);  // the byte next to it
  }
  const std::vector<float> black = corner(TrivialAugmentOptions{});
  CHECK(black.size() > 10);
  for (const float value : black) {
    CHECK(value == -0.8F);
  }
}

TEST_CASE("transform: what a policy moves has the interpolation of what is resized, or one by chance") {
  const Policy::Kind kind = parse_rand_augment("test", "rand-m9-p1");
  const Image image = picture(24, 24, 3);
  const auto result = [&](const std::optional<Interpolation>& interpolation, int64_t index) {
    Draw draw({.seed = 3, .epoch = 2, .index = index}, DrawFor::policy);
    return normalized(Policy(kind, {.fill = {102, 102, 102}, .interpolation = interpolation}).apply(image, draw));
  };
  int differ = 0;
  for (int64_t index = 0; index < 40; ++index) {
    const AugmentationKey key{.seed = 3, .epoch = 2, .index = index};
    const auto of = [&](const TransformOptions& options) {
      return apply_to(Transform(info_of(3, 24, 24), options), image, key);
    };
    const std::vector<float> bilinear = result(Interpolation::bilinear, index);
    const std::vector<float> bicubic = result(Interpolation::bicubic, index);
    differ += bilinear != bicubic ? 1 : 0;
    CHECK((of({.image_size = 24, .augmentation = {.policy = kind}}) == bilinear));
    CHECK((of({.image_size = 24, .filter = ResizeFilter::bicubic, .augmentation = {.policy = kind}}) == bicubic));
    CHECK((of({.image_size = 24, .random_filter = true, .augmentation = {.policy = kind}}) ==
           result(std::nullopt, index)));
  }
  CHECK(differ > 5);
}

TEST_CASE("transform: augmentations that make no sense") {
  const auto error = [](const AugmentOptions& augmentation) {
    return error_of([&] { Transform(info_of(3, 8, 8), {.augmentation = augmentation}); });
  };
  CHECK(error({.hflip = 1.5}) == "transform: hflip: expected a number from 0 to 1, got 1.5");
  CHECK(error({.color_jitter = {.hue = 0.6}}) == "transform: hue: expected a number from 0 to 0.5, got 0.6");
  CHECK(error({.erasing = {.probability = -1}}) == "transform: probability: expected a number from 0 to 1, got -1");
  CHECK(error({.resized_crop = RandomResizedCropOptions{.scale = {0.5, 2}}}) ==
        "transform: scale: expected two numbers in (0, 1], the lower first, got 0.5 and 2");
}

TEST_CASE("loader: augmented and mixed batches do not depend on workers or on where the run begins") {
  const std::shared_ptr<const Dataset> shapes = make_dataset("shapes", {.image_size = 16, .size = 23});
  const auto batches_of = [&](int workers, int64_t first_step) {
    const Transform transform(shapes->info(), {.image_size = 16, .random_filter = true, .augmentation = kAll});
    Loader loader(shapes, transform,
                  {.batch_size = 5,
                   .shuffle = true,
                   .epochs = 2,
                   .seed = 4,
                   .mix = {.mixup_alpha = 0.8, .cutmix_alpha = 1, .probability = 0.8},
                   .first_step = first_step,
                   .num_workers = workers});
    std::vector<std::pair<std::vector<float>, std::vector<float>>> batches;
    while (std::optional<Batch> batch = loader.next()) {
      batches.emplace_back(batch->images.to_vector<float>(), batch->targets.to_vector<float>());
    }
    return batches;
  };
  const auto whole = batches_of(0, 0);
  REQUIRE(whole.size() == 10);
  CHECK((batches_of(3, 0) == whole));
  const auto rest = batches_of(2, 4);
  REQUIRE(rest.size() == 6);
  CHECK(std::equal(rest.begin(), rest.end(), whole.begin() + 4));

  const auto classes = static_cast<size_t>(shapes->info().num_classes());
  int mixed = 0;
  for (const auto& [images, targets] : whole) {
    for (size_t row = 0; row < targets.size() / classes; ++row) {
      float sum = 0;
      float highest = 0;
      for (size_t c = 0; c < classes; ++c) {
        sum += targets[row * classes + c];
        highest = std::max(highest, targets[row * classes + c]);
      }
      CHECK(sum == doctest::Approx(1).epsilon(1e-6));
      mixed += highest < 0.999F ? 1 : 0;
    }
  }
  CHECK(mixed > 8);
  CHECK(error_of([&] {
          Loader(shapes, Transform(shapes->info(), {.image_size = 16}), {.mix = {.cutmix_alpha = -1}});
        }) == "loader: cutmix: expected a number from 0 to 1000, got -1");
}

#include "data/transform.h"

#include "files.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::data;
using norma::test::error_of;

namespace {

DatasetInfo info_of(int64_t channels, int64_t height, int64_t width) {
  DatasetInfo info;
  info.name = "test";
  info.channels = channels;
  info.height = height;
  info.width = width;
  for (int64_t c = 0; c < channels; ++c) {
    info.mean.push_back(0.25F + 0.1F * static_cast<float>(c));
    info.std.push_back(0.5F + 0.2F * static_cast<float>(c));
  }
  return info;
}

/// Bytes 1, 2, 3, …
Image counting(int64_t height, int64_t width, int64_t channels = 1) {
  Image image;
  image.set_size(height, width, channels);
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    image.pixels[i] = static_cast<uint8_t>(i + 1);
  }
  return image;
}

std::vector<float> apply_to(const Transform& transform, const Image& image, const AugmentationKey& key = {}) {
  const int64_t size = transform.options().image_size;
  const int64_t channels = transform.options().channels;
  std::vector<float> output(static_cast<size_t>(channels * size * size), -99.0F);
  transform.apply(image, key, output.data(), {size * size, size, 1});
  return output;
}

/// With these the result is the image's bytes, and 0 where it does not reach.
const TransformOptions kIdentity = {.image_size = 5, .channels = 1, .mean = {0.0F}, .std = {1.0F / 255}};

std::vector<int> rounded(const std::vector<float>& values) {
  std::vector<int> result;
  for (const float value : values) {
    result.push_back(static_cast<int>(value + 0.5F));
  }
  return result;
}

}  // namespace

TEST_CASE("transform: padding puts the image in the middle") {
  const Transform transform(info_of(1, 2, 3), kIdentity);
  // clang-format off
  CHECK(rounded(apply_to(transform, counting(2, 3))) == std::vector<int>{0, 0, 0, 0, 0,
                                                                   0, 1, 2, 3, 0,
                                                                   0, 4, 5, 6, 0,
                                                                   0, 0, 0, 0, 0,
                                                                   0, 0, 0, 0, 0});
  // clang-format on
}

TEST_CASE("transform: normalization per channel, black around the image included") {
  const Transform transform(info_of(2, 1, 1), {.image_size = 3, .channels = 2});
  const std::vector<float> output = apply_to(transform, {.height = 1, .width = 1, .channels = 2, .pixels = {51, 204}});
  for (size_t i = 0; i < 9; ++i) {
    CHECK(output[i] == doctest::Approx(((i == 4 ? 0.2F : 0.0F) - 0.25F) / 0.5F));
    CHECK(output[9 + i] == doctest::Approx(((i == 4 ? 0.8F : 0.0F) - 0.35F) / 0.7F));
  }
}

TEST_CASE("transform: a grey image fills three channels") {
  const Transform transform(info_of(1, 3, 2), {.image_size = 4});
  const std::vector<float> output = apply_to(transform, counting(3, 2));
  REQUIRE(output.size() == 48);
  const std::vector<float> plane(output.begin(), output.begin() + 16);
  CHECK(std::vector(output.begin() + 16, output.begin() + 32) == plane);
  CHECK(std::vector(output.begin() + 32, output.end()) == plane);
  CHECK(plane[1] == doctest::Approx((1.0F / 255 - 0.25F) / 0.5F));
}

TEST_CASE("transform: any strides of the output") {
  const Transform transform(info_of(3, 3, 2), {.image_size = 4, .augment = true});
  const Image image = counting(3, 2, 3);
  for (int64_t index = 0; index < 20; ++index) {
    const AugmentationKey key{.seed = 1, .epoch = 0, .index = index};
    const std::vector<float> nchw = apply_to(transform, image, key);
    std::vector<float> nhwc(48, -99.0F);
    transform.apply(image, key, nhwc.data(), {1, 4 * 3, 3});
    for (size_t c = 0; c < 3; ++c) {
      for (size_t i = 0; i < 16; ++i) {
        REQUIRE(nhwc[i * 3 + c] == nchw[c * 16 + i]);
      }
    }
  }
}

TEST_CASE("transform: crops and flips are exactly shifts and mirror images, and all of them occur") {
  const int64_t padding = 2;
  TransformOptions options = kIdentity;
  options.augment = true;
  options.crop_padding = padding;
  const Transform transform(info_of(1, 3, 3), options);
  const Image image = counting(3, 3);
  std::set<std::vector<int>> possible;
  for (int64_t dy = -padding; dy <= padding; ++dy) {
    for (int64_t dx = -padding; dx <= padding; ++dx) {
      for (const bool mirrored : {false, true}) {
        std::vector<int> expected(25);
        for (int64_t h = 0; h < 5; ++h) {
          for (int64_t w = 0; w < 5; ++w) {
            const int64_t y = h - 1 - dy;
            const int64_t x = (mirrored ? 4 - w : w) - 1 - dx;
            if (y >= 0 && y < 3 && x >= 0 && x < 3) {
              expected[static_cast<size_t>(h * 5 + w)] = image.at(y, x, 0);
            }
          }
        }
        possible.insert(expected);
      }
    }
  }
  CHECK(possible.size() == 50);
  std::set<std::vector<int>> seen;
  for (int64_t index = 0; index < 2000; ++index) {
    const std::vector<int> output = rounded(apply_to(transform, image, {.seed = 7, .epoch = 3, .index = index}));
    REQUIRE(possible.contains(output));
    seen.insert(output);
  }
  CHECK(seen == possible);
}

TEST_CASE("transform: without flip no image is mirrored") {
  TransformOptions options = kIdentity;
  options.augment = true;
  options.crop_padding = 0;
  options.flip = false;
  const Transform transform(info_of(1, 3, 3), options);
  const std::vector<float> first = apply_to(transform, counting(3, 3), {.index = 0});
  for (int64_t index = 1; index < 50; ++index) {
    CHECK(apply_to(transform, counting(3, 3), {.index = index}) == first);
  }
}

TEST_CASE("transform: chance depends on seed, epoch and index") {
  TransformOptions options = kIdentity;
  options.augment = true;
  const Transform transform(info_of(1, 3, 3), options);
  const Image image = counting(3, 3);
  const auto outputs = [&](uint64_t seed, int64_t epoch) {
    std::vector<std::vector<float>> all;
    for (int64_t index = 0; index < 20; ++index) {
      all.push_back(apply_to(transform, image, {.seed = seed, .epoch = epoch, .index = index}));
    }
    return all;
  };
  CHECK(outputs(1, 2) == outputs(1, 2));
  CHECK(outputs(1, 2) != outputs(1, 3));
  CHECK(outputs(1, 2) != outputs(2, 2));
}

TEST_CASE("transform: a crop may leave the image out altogether") {
  TransformOptions options = kIdentity;
  options.augment = true;
  options.crop_padding = 9;
  const Transform transform(info_of(1, 3, 3), options);
  for (int64_t index = 0; index < 200; ++index) {
    for (const int value : rounded(apply_to(transform, counting(3, 3), {.index = index}))) {
      REQUIRE(value >= 0);
      REQUIRE(value <= 9);
    }
  }
}

TEST_CASE("transform: images of differing sizes are resized, and their middle is cut out") {
  const Transform transform(info_of(3, 0, 0), {.image_size = 7, .crop_pct = 0.7, .filter = ResizeFilter::bicubic});
  for (const auto& [height, width] : {std::pair(9, 23), std::pair(40, 11), std::pair(7, 7), std::pair(1, 2)}) {
    CAPTURE(height);
    CAPTURE(width);
    const Image image = counting(height, width, 3);
    const Image expected = resize_and_crop(image, /* size= */ 10, /* crop_size= */ 7, ResizeFilter::bicubic);
    const std::vector<float> output = apply_to(transform, image);
    for (int64_t c = 0; c < 3; ++c) {
      for (int64_t y = 0; y < 7; ++y) {
        for (int64_t x = 0; x < 7; ++x) {
          const auto channel = static_cast<float>(c);
          const float value = static_cast<float>(expected.at(y, x, c)) / 255;
          REQUIRE(output[static_cast<size_t>((c * 7 + y) * 7 + x)] ==
                  doctest::Approx((value - 0.25F - 0.1F * channel) / (0.5F + 0.2F * channel)));
        }
      }
    }
  }
}

TEST_CASE("transform: the side of a resized image is rounded down") {
  CHECK(resized_side(224, 0.875) == 256);
  CHECK(resized_side(32, 0.875) == 36);
  CHECK(resized_side(5, 0.875) == 5);
  CHECK(resized_side(7, 1) == 7);
}

TEST_CASE("transform: images of one size are resized when they are larger than the result, and only then") {
  const Image image = counting(6, 5);
  const TransformOptions smaller = {.image_size = 5, .channels = 1, .mean = {0.0F}, .std = {1.0F / 255}};
  const Image expected = resize_and_crop(image, /* size= */ 5, /* crop_size= */ 5);  // floor(5 / 0.875)
  CHECK(rounded(apply_to(Transform(info_of(1, 6, 5), smaller), image)) ==
        std::vector<int>(expected.pixels.begin(), expected.pixels.end()));
  TransformOptions same = smaller;
  same.image_size = 6;
  const std::vector<int> output = rounded(apply_to(Transform(info_of(1, 6, 5), same), image));
  CHECK(std::vector(output.begin(), output.begin() + 7) == std::vector<int>{1, 2, 3, 4, 5, 0, 6});
}

TEST_CASE("transform: a resized image is moved and mirrored in training") {
  const Image image = counting(9, 14);
  const Image middle = resize_and_crop(image, /* size= */ 5, /* crop_size= */ 5);
  TransformOptions options = kIdentity;
  options.augment = true;
  options.crop_padding = 1;
  const Transform resizing(info_of(1, 0, 0), options);
  const Transform placing(info_of(1, 5, 5), options);
  for (int64_t index = 0; index < 30; ++index) {
    const AugmentationKey key{.seed = 3, .epoch = 1, .index = index};
    CHECK(apply_to(resizing, image, key) == apply_to(placing, middle, key));
  }
}

TEST_CASE("transform: load() asks a dataset for the window of a resized crop alone, and apply() shows the same") {
  // One picture, of which load_window() gives the window with a row and a column before it.
  class Windowed final : public Dataset {
   public:
    mutable int windows = 0;
    [[nodiscard]] const DatasetInfo& info() const override { return info_; }
    int64_t load(int64_t /*index*/, Image& image) const override {
      image = counting(9, 14, 3);
      return 7;
    }
    int64_t load_window(int64_t index, const ChooseWindow& choose, Image& image, Rectangle& window) const override {
      const int64_t label = load(index, image);
      const Rectangle chosen = choose(image.height, image.width);
      window = chosen;
      window.top = std::min<int64_t>(chosen.top, 1);
      window.left = std::min<int64_t>(chosen.left, 1);
      image = crop(image, chosen.top - window.top, chosen.left - window.left, chosen.height + window.top,
                   chosen.width + window.left);
      ++windows;
      return label;
    }

   private:
    DatasetInfo info_ = info_of(3, 0, 0);
  };
  const Windowed dataset;
  const Transform plain(dataset.info(), {.image_size = 5});
  const Transform cropped(
      dataset.info(), {.image_size = 5, .augmentation = {.resized_crop = RandomResizedCropOptions{.scale = {0.2, 1}}}});
  for (int64_t index = 0; index < 10; ++index) {
    const AugmentationKey key{.seed = 3, .epoch = 1, .index = index};
    for (const Transform* const transform : {&plain, &cropped}) {
      Image image;
      Rectangle window;
      CHECK(transform->load(dataset, index, key, image, window) == 7);
      std::vector<float> output(75);
      transform->apply(image, key, output.data(), {25, 5, 1}, &window);
      CHECK(output == apply_to(*transform, counting(9, 14, 3), key));
    }
    CHECK(dataset.windows == index + 1);
  }
}

TEST_CASE("transform: an image that is not as the dataset says") {
  const auto error_for = [](const DatasetInfo& info, const Image& image) {
    return error_of([&] { apply_to(Transform(info), image); });
  };
  CHECK(error_for(info_of(3, 4, 5), counting(5, 4, 3)) ==
        "transform: image: expected 4 x 5 pixels of 3 channels, got 5 x 4 of 3");
  CHECK(error_for(info_of(3, 0, 0), counting(5, 4, 1)) ==
        "transform: image: expected any number of pixels of 3 channels, got 5 x 4 of 1");
  CHECK(error_for(info_of(3, 0, 0), {}) ==
        "transform: image: expected any number of pixels of 3 channels, got 0 x 0 of 3");
  Image cut = counting(4, 5, 3);
  cut.pixels.pop_back();
  CHECK(error_for(info_of(3, 4, 5), cut) == "transform: image: expected 60 bytes, got 59");
}

TEST_CASE("transform: bad options, each with its error") {
  const auto error_for = [](const DatasetInfo& info, const TransformOptions& options) {
    return error_of([&] { Transform(info, options); });
  };
  CHECK(error_for(info_of(1, 8, 8), {.crop_pct = 0}) == "transform: crop_pct: expected a number from 0.05 to 1, got 0");
  CHECK(error_for(info_of(1, 8, 8), {.crop_pct = 1.5}) ==
        "transform: crop_pct: expected a number from 0.05 to 1, got 1.5");
  CHECK(error_for(info_of(3, 8, 8), {.channels = 1}) == "transform: channels: expected 3, got 1");
  CHECK(error_for(info_of(1, 8, 8), {.channels = 0}) == "transform: channels: expected at least 1, got 0");
  CHECK(error_for(info_of(1, 8, 8), {.crop_padding = -1}) ==
        "transform: crop_padding: expected a whole number from 0 to 1048576, got -1");
  CHECK(error_for(info_of(3, 8, 8), {.mean = {0.5F}}) == "transform: mean: expected 3 numbers, got 1");
  CHECK(error_for(info_of(1, 8, 8), {.std = {0.5F, 0.5F}}) == "transform: std: expected 1 numbers, got 2");
  CHECK(error_for(info_of(1, 8, 8), {.std = {0.0F}}) == "transform: std: expected positive numbers, got 0");
}

#include "core/random.h"
#include "data/augment/color.h"
#include "data/augment/random.h"
#include "data/augment/rectangles.h"
#include "data/pictures.h"
#include "error_text.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

using namespace norma;
using namespace norma::data;
using norma::test::error_of;
using norma::test::picture;

namespace {

constexpr int kDraws = 10'000;

/// A draw of image i.
Draw draw_of(int64_t i, DrawFor purpose = DrawFor::crop) {
  return {{.seed = 7, .epoch = 3, .index = i}, purpose};
}

/// Of `number(draw)` over kDraws images.
struct Moments {
  double mean = 0;
  double variance = 0;
};
Moments moments_of(const std::function<double(Draw&)>& number) {
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    Draw draw = draw_of(i);
    const double x = number(draw);
    sum += x;
    squares += x * x;
  }
  const double mean = sum / kDraws;
  return {mean, squares / kDraws - mean * mean};
}

/// Whether a mean over kDraws lies within five standard errors of what it should be.
bool is_mean(double mean, double expected, double variance) {
  return std::abs(mean - expected) <= 5 * std::sqrt(variance / kDraws);
}

}  // namespace

TEST_CASE("augment draw: a pure function of key, purpose and place in the sequence") {
  const auto numbers = [](const AugmentationKey& key, DrawFor purpose) {
    Draw draw(key, purpose);
    return std::array<double, 3>{draw.uniform(), draw.normal(), static_cast<double>(draw.integer(0, 1 << 30))};
  };
  const AugmentationKey key{.seed = 5, .epoch = 2, .index = 9};
  const auto first = numbers(key, DrawFor::policy);
  numbers({.seed = 5, .epoch = 2, .index = 10}, DrawFor::policy);
  CHECK(numbers(key, DrawFor::policy) == first);
  // Another seed, epoch, image or purpose has other numbers.
  for (const auto& other :
       {numbers({.seed = 6, .epoch = 2, .index = 9}, DrawFor::policy),
        numbers({.seed = 5, .epoch = 3, .index = 9}, DrawFor::policy),
        numbers({.seed = 5, .epoch = 2, .index = 8}, DrawFor::policy),
        numbers({.seed = 5, .epoch = 9, .index = 2}, DrawFor::policy), numbers(key, DrawFor::flip)}) {
    for (size_t i = 0; i < first.size(); ++i) {
      CHECK(other[i] != first[i]);
    }
  }
}

TEST_CASE("augment draw: uniform, whole, normal and beta numbers") {
  const Moments uniform = moments_of([](Draw& draw) { return draw.uniform(); });
  CHECK(is_mean(uniform.mean, 0.5, 1.0 / 12));
  CHECK(std::abs(uniform.variance - 1.0 / 12) < 0.003);
  const Moments first = moments_of([](Draw& draw) { return draw.normal(); });
  const Moments second = moments_of([](Draw& draw) { return draw.normal(), draw.normal(); });  // of the same pair
  for (const Moments& normal : {first, second}) {
    CHECK(is_mean(normal.mean, 0, 1));
    CHECK(std::abs(normal.variance - 1) < 0.08);  // five times sqrt(2 / 10000)
  }
  const Moments product = moments_of([](Draw& draw) {
    const double x = draw.normal();
    return x * draw.normal();
  });
  CHECK(is_mean(product.mean, 0, 1));
  // Beta(a, a): mean 1/2, variance 1 / (4 (2a + 1)).
  for (const double alpha : {0.02, 0.2, 0.8, 1.0, 4.0}) {
    const double variance = 1 / (4 * (2 * alpha + 1));
    const Moments beta = moments_of([alpha](Draw& draw) { return draw.beta(alpha); });
    CHECK(is_mean(beta.mean, 0.5, variance));
    CHECK(std::abs(beta.variance - variance) < 0.008);
  }
  std::map<int64_t, int> counts;
  for (int i = 0; i < kDraws; ++i) {
    ++counts[draw_of(i).integer(-2, 3)];
  }
  CHECK(counts.size() == 6);
  CHECK(counts.begin()->first == -2);
  CHECK(counts.rbegin()->first == 3);
  for (const auto& [value, count] : counts) {
    CHECK(is_mean(static_cast<double>(count) / kDraws, 1.0 / 6, 5.0 / 36));
  }
  CHECK(draw_of(0).integer(4, 4) == 4);
  CHECK_FALSE(moments_of([](Draw& draw) { return draw.chance(0) ? 1 : 0; }).mean > 0);
  CHECK(moments_of([](Draw& draw) { return draw.chance(1) ? 1 : 0; }).mean == 1);
}

TEST_CASE("augment draw: every order of four comes equally often") {
  std::map<std::vector<int>, int> counts;
  for (int i = 0; i < kDraws; ++i) {
    std::vector<int> order(4);
    draw_of(i).permute(order);
    ++counts[order];
  }
  CHECK(counts.size() == 24);
  for (const auto& [order, count] : counts) {
    CHECK(is_mean(static_cast<double>(count) / kDraws, 1.0 / 24, 23.0 / 576));
  }
}

TEST_CASE("random_resized_crop: areas, ratios and places are those of torchvision") {
  // At 640 x 640 few windows do not fit: the area is uniform and the logarithm of the ratio too.
  const RandomResizedCropOptions options{.scale = {0.08, 0.5}, .ratio = {0.5, 2}};
  const auto window = [&](Draw& draw) { return draw_resized_crop(draw, 640, 640, options); };
  const Moments area = moments_of([&](Draw& draw) {
    const Rectangle w = window(draw);
    return static_cast<double>(w.height * w.width) / (640 * 640);
  });
  CHECK(is_mean(area.mean, 0.29, 0.42 * 0.42 / 12));
  CHECK(std::abs(area.variance - 0.42 * 0.42 / 12) < 6e-4);
  const double log_range = 2 * std::log(2.0);
  const Moments ratio = moments_of([&](Draw& draw) {
    const Rectangle w = window(draw);
    return std::log(static_cast<double>(w.width) / static_cast<double>(w.height));
  });
  CHECK(is_mean(ratio.mean, 0, log_range * log_range / 12));
  CHECK(std::abs(ratio.variance - log_range * log_range / 12) < 0.008);
  const Moments place = moments_of([&](Draw& draw) {
    const Rectangle w = window(draw);
    return static_cast<double>(w.top) / static_cast<double>(640 - w.height);
  });
  CHECK(is_mean(place.mean, 0.5, 1.0 / 12));
  for (int i = 0; i < 1000; ++i) {
    Draw draw = draw_of(i);
    const Rectangle w = draw_resized_crop(draw, 7, 31);
    CHECK((w.top >= 0 && w.left >= 0 && w.height > 0 && w.width > 0));
    CHECK((w.top + w.height <= 7 && w.left + w.width <= 31));
  }
}

TEST_CASE("random_resized_crop: the window in the middle where none fits") {
  const auto window = [](int64_t height, int64_t width, const RandomResizedCropOptions& options) {
    Draw draw = draw_of(1);
    const Rectangle w = draw_resized_crop(draw, height, width, options);
    return std::array<int64_t, 4>{w.top, w.left, w.height, w.width};
  };
  const RandomResizedCropOptions whole{.scale = {1, 1}, .ratio = {3.0 / 4, 4.0 / 3}};
  CHECK(window(10, 40, whole) == std::array<int64_t, 4>{0, 13, 10, 13});
  CHECK(window(40, 10, whole) == std::array<int64_t, 4>{13, 0, 13, 10});
  CHECK(window(1, 1, {.scale = {0.08, 0.1}, .ratio = {1, 1}}) == std::array<int64_t, 4>{0, 0, 1, 1});
  CHECK(window(1, 50, {.scale = {0.9, 1}, .ratio = {0.01, 0.02}}) == std::array<int64_t, 4>{0, 24, 1, 1});
  CHECK(error_of([&] { window(0, 3, {}); }) == "random_resized_crop: sizes: expected at least 1, got 0 x 3");
  CHECK(error_of([&] {
          window(3, 3, {.scale = {0, 1}});
        }) == "random_resized_crop: scale: expected two numbers in (0, 1], the lower first, got 0 and 1");
  CHECK(error_of([&] {
          window(3, 3, {.ratio = {2, 1}});
        }) == "random_resized_crop: ratio: expected two numbers above 0, the lower first, got 2 and 1");
}

TEST_CASE("random_resized_crop: ratios beyond all sizes") {
  for (const double far : {1e-300, 1e300}) {
    for (int i = 0; i < 100; ++i) {
      Draw draw(AugmentationKey{.seed = 2, .epoch = 1, .index = i}, DrawFor::crop);
      const Rectangle window = draw_resized_crop(draw, 30, 40, {.ratio = {far, far}});
      CHECK(window.height == (far < 1 ? 30 : 1));
      CHECK(window.width == (far < 1 ? 1 : 40));
    }
  }
}

TEST_CASE("color_jitter: factors, order and result") {
  const ColorJitterOptions options{.brightness = 0.4, .contrast = 1.5, .saturation = 0, .hue = 0.1};
  const auto factor = [&](size_t i) {
    return moments_of([&, i](Draw& draw) { return draw_color_jitter(draw, options).factors[i]; });
  };
  CHECK(is_mean(factor(0).mean, 1, 0.8 * 0.8 / 12));
  CHECK(is_mean(factor(1).mean, 1.25, 2.5 * 2.5 / 12));  // from 0, not from -0.5
  CHECK(factor(2).mean == 1);
  CHECK(is_mean(factor(3).mean, 0, 0.2 * 0.2 / 12));
  const Image image = picture(5, 6, 3);
  const ColorJitter jitter{.order = {3, 1, 0, 2}, .factors = {1.3, 0.6, 1.7, -0.2}};
  CHECK(apply(jitter, image).pixels ==
        adjust_saturation(adjust_brightness(adjust_contrast(adjust_hue(image, -0.2), 0.6), 1.3), 1.7).pixels);
  CHECK(apply(ColorJitter{}, image).pixels == image.pixels);
  CHECK(apply(jitter, picture(1, 1, 1)).channels == 1);
}

TEST_CASE("color_jitter: texts") {
  const ColorJitterOptions one = parse_color_jitter("x", "0.4");
  CHECK(one.brightness == 0.4);
  CHECK(one.saturation == 0.4);
  CHECK(one.hue == 0);
  const ColorJitterOptions four = parse_color_jitter("x", "0.4,0.3,0.2,0.1");
  CHECK(four.contrast == 0.3);
  CHECK(four.hue == 0.1);
  CHECK(parse_color_jitter("x", "1,2,3").saturation == 3);
  CHECK_FALSE(parse_color_jitter("x", "").any());
  for (const char* text : {"0.4,0.3", "a", "0.4,", ",1", "0.1,0.1,0.1,0.1,0.1", "0.4 "}) {
    CHECK(error_of([&] { parse_color_jitter("train: color-jitter", text); }) ==
          std::string("train: color-jitter: expected one, three or four numbers as in 0.4 or 0.4,0.4,0.4,0.1, got ") +
              text);
  }
  CHECK(error_of([] { parse_color_jitter("train", "1,1,1,0.7"); }) ==
        "train: hue: expected a number from 0 to 0.5, got 0.7");
  CHECK(error_of([] { parse_color_jitter("train", "-1"); }) ==
        "train: brightness: expected a number from 0 to 999, got -1");
  // The greatest makes no factor that the adjustments refuse.
  CHECK(error_of([] { parse_color_jitter("train", "999.5"); }) ==
        "train: brightness: expected a number from 0 to 999, got 999.5");
  for (int i = 0; i < 200; ++i) {
    Draw draw(AugmentationKey{.seed = 2, .epoch = 1, .index = i}, DrawFor::color_jitter);
    CHECK(apply(draw_color_jitter(draw, parse_color_jitter("x", "999")), picture(2, 2, 3)).height == 2);
  }
}

TEST_CASE("augment draw: normals() are the numbers of normal(), bit for bit, and go on with them") {
  Draw one({.seed = 7, .epoch = 1, .index = 3}, DrawFor::erasing);
  Draw many = one;
  std::vector<float> got;
  for (size_t i = 0; i < 400; ++i) {
    got.resize(i % 7 == 0 ? 2000 + i : i % 41);
    many.normals(got);
    for (const float value : got) {
      REQUIRE(value == static_cast<float>(one.normal()));
    }
    if (i % 5 == 0) {
      CHECK(many.normal() == one.normal());
    }
    CHECK(many.uniform() == one.uniform());
  }
}

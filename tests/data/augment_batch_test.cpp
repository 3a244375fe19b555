#include "core/factory.h"
#include "data/augment/mix.h"
#include "data/augment/rectangles.h"
#include "error_text.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

using namespace norma;
using namespace norma::data;
using norma::test::error_of;

namespace {

constexpr int kDraws = 10'000;

Draw draw_of(int64_t i, DrawFor purpose) {
  return {{.seed = 2, .epoch = 1, .index = i}, purpose};
}

/// Whether a mean of `count` numbers lies within five standard errors of what it should be.
bool is_mean(double mean, double expected, double variance, double count = kDraws) {
  return std::abs(mean - expected) <= 5 * std::sqrt(variance / count);
}

}  // namespace

TEST_CASE("random_erasing: probability, areas, ratios and places are those of timm") {
  const RandomErasingOptions options{.probability = 0.25, .area = {0.02, 0.2}};
  double count = 0;
  double area = 0;
  double ratio = 0;
  double place = 0;
  for (int i = 0; i < kDraws; ++i) {
    Draw draw = draw_of(i, DrawFor::erasing);
    for (const Rectangle& r : draw_erasing(draw, 400, 500, options)) {
      CHECK((r.top >= 0 && r.left >= 0 && r.top + r.height <= 400 && r.left + r.width <= 500));
      ++count;
      area += static_cast<double>(r.height * r.width) / (400 * 500);
      ratio += std::log(static_cast<double>(r.height) / static_cast<double>(r.width));
      place += static_cast<double>(r.left) / static_cast<double>(500 - r.width);
    }
  }
  CHECK(is_mean(count / kDraws, 0.25, 0.25 * 0.75));
  CHECK(is_mean(area / count, 0.11, 0.18 * 0.18 / 12, count));
  const double log_range = 2 * std::log(1 / 0.3);
  CHECK(is_mean(ratio / count, 0, log_range * log_range / 12, count));
  CHECK(is_mean(place / count, 0.5, 1.0 / 12, count));
  // Several rectangles: from 1 to 4, and smaller as there are more.
  std::array<int, 5> numbers{};
  for (int i = 0; i < kDraws; ++i) {
    Draw draw = draw_of(i, DrawFor::erasing);
    const auto rectangles =
        draw_erasing(draw, 400, 500, {.probability = 1, .count = 4, .area = {0.2, 0.2}, .ratio = {1, 1}});
    ++numbers.at(rectangles.size());
    const double expected = 0.2 * 400 * 500 / static_cast<double>(rectangles.size());
    CHECK(std::abs(static_cast<double>(rectangles[0].height * rectangles[0].width) - expected) < 250);
  }
  CHECK(numbers[0] == 0);
  for (size_t i = 1; i < numbers.size(); ++i) {
    CHECK(is_mean(static_cast<double>(numbers[i]) / kDraws, 0.25, 0.25 * 0.75));
  }
}

TEST_CASE("random_erasing: what comes in place, in both memory formats") {
  constexpr int64_t kHeight = 40;
  constexpr int64_t kWidth = 50;
  for (const ErasingMode mode : {ErasingMode::constant, ErasingMode::random, ErasingMode::pixel}) {
    const RandomErasingOptions options{.probability = 1, .mode = mode, .area = {0.2, 0.3}};
    Draw look = draw_of(5, DrawFor::erasing);
    const Rectangle r = draw_erasing(look, kHeight, kWidth, options).at(0);
    REQUIRE(r.height * r.width > 300);
    std::vector<float> planes(3 * kHeight * kWidth, 9.0F);
    std::vector<float> pixels = planes;
    Draw draw = draw_of(5, DrawFor::erasing);
    random_erasing(planes.data(), {3, kHeight, kWidth}, {kHeight * kWidth, kWidth, 1}, options, draw);
    Draw again = draw_of(5, DrawFor::erasing);
    random_erasing(pixels.data(), {3, kHeight, kWidth}, {1, kWidth * 3, 3}, options, again);
    double squares = 0;
    std::vector<float> inside;
    for (int64_t c = 0; c < 3; ++c) {
      for (int64_t y = 0; y < kHeight; ++y) {
        for (int64_t x = 0; x < kWidth; ++x) {
          const float value = planes[static_cast<size_t>((c * kHeight + y) * kWidth + x)];
          CHECK(pixels[static_cast<size_t>((y * kWidth + x) * 3 + c)] == value);
          const bool erased = y >= r.top && y < r.top + r.height && x >= r.left && x < r.left + r.width;
          CHECK((value == 9.0F) == !erased);
          if (erased) {
            inside.push_back(value);
            squares += double{value} * value;
          }
        }
      }
    }
    std::sort(inside.begin(), inside.end());
    const auto kinds = std::unique(inside.begin(), inside.end()) - inside.begin();
    const int64_t count = 3 * r.height * r.width;
    if (mode == ErasingMode::constant) {
      CHECK(squares == 0);
    } else if (mode == ErasingMode::random) {
      CHECK(kinds == 3);
    } else {
      CHECK(kinds > count - 3);
      CHECK(is_mean(squares / static_cast<double>(count), 1, 2, static_cast<double>(count)));
    }
  }
}

TEST_CASE("random_erasing: tiny images, and errors") {
  for (int64_t i = 0; i < 500; ++i) {
    std::vector<float> image(6, 1.0F);
    Draw draw = draw_of(i, DrawFor::erasing);
    random_erasing(image.data(), {1, 1, 1}, {1, 1, 1}, {.probability = 1, .mode = ErasingMode::pixel}, draw);
    CHECK(image == std::vector<float>(6, 1.0F));  // nothing is lower than one row
    random_erasing(image.data(), {1, 2, 3}, {6, 3, 1}, {.probability = 1, .count = 3, .area = {0.3, 1}}, draw);
    CHECK(std::count(image.begin() + 3, image.end(), 1.0F) + std::count(image.begin(), image.begin() + 3, 1.0F) > 0);
  }
  for (int64_t i = 0; i < 500; ++i) {  // sides beyond all numbers
    Draw draw = draw_of(i, DrawFor::erasing);
    for (const double far : {1e-300, 1e300}) {
      CHECK(draw_erasing(draw, 40, 50, {.probability = 1, .area = {0.5, 1}, .ratio = {far, far}}).empty());
    }
    CHECK(draw_erasing(draw, 40, 50, {.probability = 1, .area = {0, 0}, .ratio = {1e-300, 1.7e308}}).size() <= 1);
  }
  Draw draw = draw_of(0, DrawFor::erasing);
  CHECK(error_of([&] { draw_erasing(draw, 4, 4, {.probability = 1.5}); }) ==
        "random_erasing: probability: expected a number from 0 to 1, got 1.5");
  CHECK(error_of([&] { draw_erasing(draw, 4, 4, {.count = 0}); }) ==
        "random_erasing: count: expected a whole number from 1 to 100, got 0");
  CHECK(error_of([&] {
          draw_erasing(draw, 4, 4, {.area = {0.5, 0.1}});
        }) == "random_erasing: area: expected two numbers from 0 to 1, the lower first, got 0.5 and 0.1");
  CHECK(error_of([&] {
          draw_erasing(draw, 4, 4, {.ratio = {0, 1}});
        }) == "random_erasing: ratio: expected two numbers above 0, the lower first, got 0 and 1");
  CHECK(error_of([] { erasing_mode("train: remode", "pixels"); }) ==
        "train: remode: unknown mode 'pixels'; did you mean 'pixel'?");
  CHECK(erasing_mode("x", "rand") == ErasingMode::random);
}

TEST_CASE("mix: how often, which, and by how much") {
  const MixOptions both{.mixup_alpha = 0.8, .cutmix_alpha = 1, .probability = 0.7, .switch_probability = 0.3};
  double none = 0;
  double cutmix = 0;
  double mixup_sum = 0;
  double mixup_squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    Draw draw = draw_of(i, DrawFor::mix);
    const Mix mix = draw_mix(draw, 224, 160, both);
    CHECK((mix.lambda >= 0 && mix.lambda <= 1));
    if (mix.cutmix) {
      ++cutmix;
      CHECK(mix.lambda == doctest::Approx(1 - static_cast<double>(mix.box.height * mix.box.width) / (224 * 160)));
      CHECK((mix.box.top >= 0 && mix.box.left >= 0));
      CHECK((mix.box.top + mix.box.height <= 224 && mix.box.left + mix.box.width <= 160));
    } else if (mix.lambda == 1) {
      ++none;
    } else {
      mixup_sum += mix.lambda;
      mixup_squares += mix.lambda * mix.lambda;
    }
  }
  const double mixup = kDraws - none - cutmix;
  CHECK(is_mean(none / kDraws, 0.3, 0.21));
  CHECK(is_mean(cutmix / kDraws, 0.21, 0.21 * 0.79));
  const double variance = 1 / (4 * (2 * 0.8 + 1));
  CHECK(is_mean(mixup_sum / mixup, 0.5, variance, mixup));
  CHECK(std::abs(mixup_squares / mixup - 0.25 - variance) < 0.015);
  for (int i = 0; i < 100; ++i) {
    Draw first = draw_of(i, DrawFor::mix);
    CHECK_FALSE(draw_mix(first, 8, 8, {.mixup_alpha = 1}).cutmix);
    Draw second = draw_of(i, DrawFor::mix);
    CHECK(draw_mix(second, 8, 8, {.cutmix_alpha = 1}).cutmix);
    Draw third = draw_of(i, DrawFor::mix);
    CHECK(draw_mix(third, 8, 8, {}).lambda == 1);
    Draw fourth = draw_of(i, DrawFor::mix);
    CHECK(draw_mix(fourth, 1, 1, {.cutmix_alpha = 1}).lambda == 1);  // of one pixel a part is none
  }
}

TEST_CASE("mix: the box of CutMix has its size, an even place, and is cut off at the edges") {
  constexpr int64_t kHeight = 1000;
  constexpr int64_t kWidth = 2000;
  double share = 0;
  double row = 0;
  int whole = 0;
  for (int i = 0; i < kDraws; ++i) {
    Draw draw = draw_of(i, DrawFor::mix);
    const Mix mix = draw_mix(draw, kHeight, kWidth, {.cutmix_alpha = 1});
    const auto [top, left, height, width] = mix.box;
    share += 1 - mix.lambda;
    if (top > 0 && left > 0 && top + height < kHeight && left + width < kWidth) {  // not cut off
      ++whole;
      CHECK((2 * height <= width && width <= 2 * height + 1));  // the image's proportions
      row += static_cast<double>(top - 1) / static_cast<double>(kHeight - height - 2);
    }
  }
  // A side s of the image has the density 2 s, and an even middle loses s² / 4 of it at the edges: the mean area is the
  // integral of 2 s (s - s² / 4)².
  CHECK(is_mean(share / kDraws, 77.0 / 240, 0.07));
  CHECK(whole > kDraws / 10);
  CHECK(is_mean(row / whole, 0.5, 1.0 / 12, whole));
}

TEST_CASE("mix: the box of CutMix is that of timm 1.0.31") {
  struct Case {
    int64_t height, width;
    double lambda;
    int64_t row, column, top, bottom, left, right;
  };
  // middles = iter([row, column]); numpy.random.randint = lambda *a, **k: next(middles)
  // (top, bottom, left, right), _ = timm.data.mixup.cutmix_bbox_and_lam((3, height, width), lam)
  for (const Case& c : std::vector<Case>{{32, 32, 0.5, 16, 16, 5, 27, 5, 27},
                                         {32, 32, 0.5, 0, 31, 0, 11, 20, 32},
                                         {32, 32, 0.3, 5, 20, 0, 18, 7, 32},
                                         {33, 31, 0.3, 16, 15, 3, 30, 3, 28},
                                         {7, 9, 0.9, 3, 4, 2, 4, 3, 5},
                                         {7, 9, 0.9, 0, 8, 0, 1, 7, 9},
                                         {1, 1, 0.0, 0, 0, 0, 1, 0, 1},
                                         {1, 1, 0.4, 0, 0, 0, 0, 0, 0},
                                         {224, 160, 0.77, 100, 3, 47, 154, 0, 41},
                                         {224, 160, 0.01, 223, 159, 112, 224, 80, 160},
                                         {2, 3, 0.5, 1, 2, 1, 2, 1, 3},
                                         {5, 5, 1.0, 2, 2, 2, 2, 2, 2}}) {
    CAPTURE(c.height);
    CAPTURE(c.lambda);
    const Rectangle box = cutmix_box(c.height, c.width, c.lambda, c.row, c.column);
    CHECK(box.top == c.top);
    CHECK(box.left == c.left);
    CHECK(box.top + box.height == c.bottom);
    CHECK(box.left + box.width == c.right);
  }
  // The mean of 400,000 draws: cutmix_bbox_and_lam((3, 32, 32), numpy.random.beta(1, 1))[1].
  constexpr int kMany = 4 * kDraws;
  double sum = 0;
  for (int i = 0; i < kMany; ++i) {
    Draw draw = draw_of(i, DrawFor::mix);
    sum += draw_mix(draw, 32, 32, {.cutmix_alpha = 1}).lambda;
  }
  CHECK(is_mean(sum / kMany, 0.6901, 0.186 * 0.186, kMany));
}

TEST_CASE("mix: images and targets") {
  for (const auto format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    for (const int64_t n : {4, 5}) {
      const auto fresh = [&] {
        Tensor x = empty({n, 2, 3, 4}, {.device = kCpu, .format = format});
        for (int64_t i = 0; i < n; ++i) {
          for (int64_t j = 0; j < 24; ++j) {
            x.data<float>()[i * x.strides()[0] + j] = static_cast<float>(100 * i + j);
          }
        }
        return x;
      };
      const std::vector<double> before = fresh().to_vector<double>();
      Tensor mixed = fresh();
      mix_images_(mixed, {.lambda = 0.75});
      Tensor cut = fresh();
      mix_images_(cut, {.lambda = 0.5, .cutmix = true, .box = {.top = 1, .left = 2, .height = 2, .width = 1}});
      const std::vector<double> mixup = mixed.to_vector<double>();
      const std::vector<double> cutmix = cut.to_vector<double>();
      for (int64_t i = 0; i < n; ++i) {
        for (int64_t j = 0; j < 24; ++j) {
          const auto own = static_cast<size_t>(24 * i + j);
          const auto other = static_cast<size_t>(24 * (n - 1 - i) + j);
          CHECK(mixup[own] == doctest::Approx(0.75 * before[own] + 0.25 * before[other]).epsilon(1e-6));
          const bool inside = j % 12 / 4 >= 1 && j % 4 == 2;
          CHECK(cutmix[own] == before[inside ? other : own]);
        }
      }
    }
  }
  const Tensor labels = from_vector<int64_t>({2, 0, 0, 1, 2}, {5});
  const std::vector<double> targets = mixed_targets(labels, 3, {.lambda = 0.7}, 0.3).to_vector<double>();
  const std::vector<double> expected = {0.1, 0.1,        0.8,        0.1 + 0.49, 0.1 + 0.21, 0.1, 0.8, 0.1,
                                        0.1, 0.1 + 0.21, 0.1 + 0.49, 0.1,        0.1,        0.1, 0.8};
  REQUIRE(targets.size() == expected.size());
  for (size_t i = 0; i < targets.size(); ++i) {
    CHECK(targets[i] == doctest::Approx(expected[i]).epsilon(1e-6));
  }
}

TEST_CASE("mix: errors") {
  Draw draw = draw_of(0, DrawFor::mix);
  CHECK(error_of([&] { draw_mix(draw, 4, 4, {.mixup_alpha = -1}); }) ==
        "mix: mixup: expected a number from 0 to 1000, got -1");
  CHECK(error_of([&] { draw_mix(draw, 4, 4, {.probability = 2}); }) ==
        "mix: mixup-prob: expected a number from 0 to 1, got 2");
  for (const double tiny : {1e-320, 1e-301, 9e-7}) {
    CHECK(error_of([&] {
            draw_mix(draw, 4, 4, {.cutmix_alpha = tiny});
          }).starts_with("mix: cutmix: expected 0 or at least 1e-06, got "));
  }
  for (int i = 0; i < 1000; ++i) {
    Draw least = draw_of(i, DrawFor::mix);
    const double lambda = draw_mix(least, 4, 4, {.mixup_alpha = kLeastMixAlpha}).lambda;
    CHECK((lambda >= 0 && lambda <= 1));
  }
  Tensor images = zeros({2, 1, 3, 4}, {.device = kCpu});
  CHECK(error_of([&] { mix_images_(images, {.lambda = 1.5}); }) ==
        "mix: lambda: expected a number from 0 to 1, got 1.5");
  CHECK(error_of([&] {
          mix_images_(images, {.lambda = 0.5, .cutmix = true, .box = {.top = 1, .left = 2, .height = 3, .width = 1}});
        }) == "mix: box: expected one inside 3 x 4 pixels, got 3 x 1 from row 1 and column 2 on");
  CHECK(error_of([&] {
          mix_images_(images, {.lambda = 0.5, .cutmix = true, .box = {.top = 0, .left = -1, .height = 1, .width = 1}});
        }) == "mix: box: expected one inside 3 x 4 pixels, got 1 x 1 from row 0 and column -1 on");
  Tensor flat = zeros({4, 3}, {.device = kCpu});
  CHECK(error_of([&] { mix_images_(flat, {.lambda = 0.5}); }) ==
        "mix: images: expected (N, C, H, W) of float32, got [4, 3] of float32");
  CHECK(error_of([&] { mixed_targets(flat, 3, {}); }) == "mix: labels: expected (N) of int64, got [4, 3] of float32");
  CHECK(error_of([&] {
          mixed_targets(from_vector<int64_t>({0, 3}, {2}), 3, {});
        }) == "mix: labels: expected numbers from 0 to 2, got 3");
  CHECK(error_of([&] { mixed_targets(from_vector<int64_t>({0}, {1}), 3, {}, 1); }) ==
        "mix: label_smoothing: expected a number in [0, 1), got 1");
}

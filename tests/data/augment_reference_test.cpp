#include "data/augment/color.h"
#include "data/augment/geometry.h"
#include "data/augment/mix.h"
#include "data/augment/policy.h"
#include "data/augment/random.h"
#include "data/augment/rectangles.h"
#include "data/image_file.h"
#include "data/resize.h"
#include "data/safetensors.h"
#include "data/survey.h"
#include "data/transform.h"
#include "paths.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::data;

namespace {

constexpr int64_t kDraws = 10'000;
constexpr int64_t kPictures = 2'000;
constexpr int64_t kSide = 64;

Draw draw_of(int64_t i, DrawFor purpose) {
  return {{.seed = 11, .epoch = 2, .index = i}, purpose};
}

const std::filesystem::path& reference_folder() {
  static const std::filesystem::path folder = test::source_folder() / "tests" / "reference";
  return folder;
}

/// Of torchvision and timm: tests/reference/make_augment_statistics.py.
const Safetensors& reference() {
  static const Safetensors file = load_safetensors(reference_folder() / "augment_statistics.safetensors");
  return file;
}

Image picture() {
  const Tensor x = reference().find("image");
  const auto* bytes = x.data<uint8_t>();
  return {.height = x.size(0), .width = x.size(1), .channels = x.size(2), .pixels = {bytes, bytes + x.numel()}};
}

/// The largest difference of two distributions, of which one is known by its quantiles at the levels (i + 0.5) / n.
double largest_difference(std::vector<double> draws, const std::vector<double>& quantiles) {
  std::sort(draws.begin(), draws.end());
  const auto share = [&](auto end) {
    return static_cast<double>(end - draws.begin()) / static_cast<double>(draws.size());
  };
  double most = 0;
  for (size_t i = 0; i < quantiles.size(); ++i) {
    const double level = (static_cast<double>(i) + 0.5) / static_cast<double>(quantiles.size());
    // What is rounded to a quantile lies on either side of it.
    const double near = 1e-6 * std::max(1.0, std::abs(quantiles[i]));
    most = std::max(most, level - share(std::upper_bound(draws.begin(), draws.end(), quantiles[i] + near)));
    most = std::max(most, share(std::lower_bound(draws.begin(), draws.end(), quantiles[i] - near)) - level);
  }
  return most;
}

/// Two-sample Kolmogorov-Smirnov: two of as many draws from one distribution differ by more in 1 of 10,000 cases.
void check_like_reference(const std::string& name, const std::vector<double>& draws) {
  CAPTURE(name);
  REQUIRE(!draws.empty());
  const std::vector<double> quantiles = reference().find("draws." + name).to_vector<double>();
  const double step = 0.5 / static_cast<double>(quantiles.size());
  CHECK(largest_difference(draws, quantiles) <= 2.23 * std::sqrt(2.0 / static_cast<double>(draws.size())) + step);
}

struct OpDraws {
  std::map<std::string, std::vector<double>> numbers;  // by the name of the op
};

OpDraws draws_of(const Policy& policy) {
  OpDraws result;
  for (int64_t i = 0; i < kDraws; ++i) {
    Draw draw = draw_of(i, DrawFor::policy);
    for (const PolicyStep& step : policy.draw(draw, kSide, kSide)) {
      result.numbers[std::string(name_of(step.op))].push_back(step.argument);
    }
  }
  return result;
}

using Augment = std::function<Image(const Image&, int64_t index)>;

/// As in make_augment_statistics.py.
std::vector<std::pair<std::string, Augment>> augmentations() {
  const auto with_policy = [](const char* text, const PolicyOptions& options) {
    return [policy = Policy(parse_policy("test", text), options)](const Image& image, int64_t i) {
      Draw draw = draw_of(i, DrawFor::policy);
      return policy.apply(image, draw);
    };
  };
  return {
      {"crop",
       [](const Image& image, int64_t i) {
         Draw draw = draw_of(i, DrawFor::crop);
         const Rectangle w = draw_resized_crop(draw, image.height, image.width);
         return resize(crop(image, w.top, w.left, w.height, w.width), kSide, kSide, ResizeFilter::bicubic);
       }},
      {"shift",
       [](const Image& image, int64_t i) {
         const Transform transform(
             {.channels = 3, .height = kSide, .width = kSide, .mean = {0, 0, 0}, .std = {1, 1, 1}},
             {.image_size = kSide, .augment = true, .crop_padding = 4, .flip = false});
         Image result = image;
         transform.apply(image, {.seed = 11, .epoch = 2, .index = i}, result.pixels.data(), {1, kSide * 3, 3});
         return result;
       }},
      {"hflip",
       [](const Image& image, int64_t i) {
         Draw draw = draw_of(i, DrawFor::flip);
         return draw.chance(0.5) ? hflip(image) : image;
       }},
      {"jitter",
       [](const Image& image, int64_t i) {
         Draw draw = draw_of(i, DrawFor::color_jitter);
         return apply(draw_color_jitter(draw, {.brightness = 0.4, .contrast = 0.3, .saturation = 0.2, .hue = 0.1}),
                      image);
       }},
      {"ta_wide", with_policy("ta_wide", {.interpolation = Interpolation::bilinear})},
      {"rand", with_policy("rand-m9-mstd0.5-inc1", {})},
  };
}

double mean_difference(const Image& a, const Image& b) {
  double sum = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) {
    sum += std::abs(static_cast<double>(a.pixels[i]) - static_cast<double>(b.pixels[i]));
  }
  return sum / static_cast<double>(a.pixels.size());
}

}  // namespace

TEST_CASE("augment reference: windows, rectangles, factors and shares are distributed as torchvision's and timm's") {
  std::map<std::string, std::vector<double>> draws;
  for (int64_t i = 0; i < kDraws; ++i) {
    Draw crop_draw = draw_of(i, DrawFor::crop);
    const Rectangle w = draw_resized_crop(crop_draw, 375, 500);
    draws["crop.area"].push_back(static_cast<double>(w.height * w.width) / (375 * 500));
    draws["crop.log_ratio"].push_back(std::log(static_cast<double>(w.width) / static_cast<double>(w.height)));
    draws["crop.top"].push_back(static_cast<double>(w.top));
    draws["crop.left"].push_back(static_cast<double>(w.left));

    Draw erasing_draw = draw_of(i, DrawFor::erasing);
    for (const Rectangle& r : draw_erasing(erasing_draw, kSide, kSide, {.probability = 1})) {
      draws["erasing.area"].push_back(static_cast<double>(r.height * r.width) / (kSide * kSide));
      draws["erasing.log_ratio"].push_back(std::log(static_cast<double>(r.height) / static_cast<double>(r.width)));
      draws["erasing.top"].push_back(static_cast<double>(r.top));
    }

    Draw jitter_draw = draw_of(i, DrawFor::color_jitter);
    const ColorJitter jitter =
        draw_color_jitter(jitter_draw, {.brightness = 0.4, .contrast = 0.3, .saturation = 0.2, .hue = 0.1});
    for (size_t k = 0; k < jitter.factors.size(); ++k) {
      draws["jitter." + std::to_string(k)].push_back(jitter.factors[k]);
    }

    Draw mix_draw = draw_of(i, DrawFor::mix);
    const Mix mix = draw_mix(mix_draw, kSide, kSide,
                             {.mixup_alpha = 0.8, .cutmix_alpha = 1, .probability = 0.9, .switch_probability = 0.4});
    draws[mix.cutmix ? "mix.cutmix" : "mix.mixup"].push_back(mix.lambda);
  }
  CHECK(draws.size() == 13);
  for (const auto& [name, numbers] : draws) {
    check_like_reference(name, numbers);
  }
}

TEST_CASE("augment reference: ops and their numbers come as in torchvision's and timm's policies") {
  const auto names = nlohmann::json::parse(reference().metadata.at("ops"));
  for (const auto& [name, text] :
       {std::pair<std::string, std::string>("ta_wide", "ta_wide"), {"rand", "rand-m9-mstd0.5-inc1"}}) {
    CAPTURE(name);
    OpDraws draws = draws_of(Policy(parse_policy("test", text)));
    const auto ops = names.at(name).get<std::vector<std::string>>();
    const std::vector<double> counts = reference().find("ops." + name).to_vector<double>();
    CHECK(draws.numbers.size() == ops.size());
    for (size_t i = 0; i < ops.size(); ++i) {
      CAPTURE(ops[i]);
      const std::vector<double>& numbers = draws.numbers[ops[i]];
      const auto count = static_cast<double>(numbers.size());
      CHECK(std::abs(count - counts[i]) <= 5 * std::sqrt(count + counts[i]));
      if (std::any_of(numbers.begin(), numbers.end(), [](double number) { return number != 0; })) {
        check_like_reference(name + "." + ops[i], numbers);
      }
    }
  }
}

TEST_CASE("augment reference: an image is changed as much as by torchvision and timm") {
  const Image image = picture();
  for (const auto& [name, augment] : augmentations()) {
    CAPTURE(name);
    double sum = 0;
    double squares = 0;
    for (int64_t i = 0; i < kPictures; ++i) {
      const double difference = mean_difference(augment(image, i), image);
      sum += difference;
      squares += difference * difference;
    }
    const double mean = sum / kPictures;
    const double variance = squares / kPictures - mean * mean;
    const std::vector<double> expected = reference().find("difference." + name).to_vector<double>();
    CAPTURE(mean);
    CAPTURE(expected[0]);
    CHECK(std::abs(mean - expected[0]) <= 4 * std::sqrt((variance + expected[1] * expected[1]) / kPictures));
    CHECK(std::abs(std::sqrt(variance) - expected[1]) <= 0.1 * expected[1]);
  }
}

TEST_CASE("augment reference: fixed draws give the pixels of a kept picture") {
  constexpr int64_t kColumns = 4;
  const Image image = picture();
  std::vector<Image> images;
  for (const auto& [name, augment] : augmentations()) {
    for (int64_t i = 0; i < kColumns; ++i) {
      images.push_back(augment(image, i));
    }
  }
  const Image sheet = contact_sheet(images, {.columns = kColumns});
  const std::filesystem::path file = reference_folder() / "augment.png";
  if (std::getenv("NORMA_WRITE_REFERENCE") != nullptr) {
    write_png(file, sheet);
  }
  const Image kept = read_image(file);
  CHECK(kept.height == sheet.height);
  CHECK(kept.width == sheet.width);
  CHECK((kept.pixels == sheet.pixels));
}

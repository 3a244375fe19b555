#include "core/factory.h"
#include "data/augment/color.h"
#include "data/augment/geometry.h"
#include "data/safetensors.h"
#include "error_text.h"
#include "paths.h"

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::data;
using norma::test::error_of;

namespace {

/// (height, width, channels), as the file of Pillow's bytes has images.
Image image_of(const Tensor& x) {
  const auto* bytes = x.data<uint8_t>();
  return {.height = x.size(0), .width = x.size(1), .channels = x.size(2), .pixels = {bytes, bytes + x.numel()}};
}

Image flat(int64_t height, int64_t width, std::vector<uint8_t> pixel) {
  Image image{.height = height, .width = width, .channels = static_cast<int64_t>(pixel.size()), .pixels = {}};
  for (int64_t i = 0; i < height * width; ++i) {
    image.pixels.insert(image.pixels.end(), pixel.begin(), pixel.end());
  }
  return image;
}

using Numbers = std::vector<double>;
using ColorOp = std::function<Image(const Image&, const Numbers&)>;
using GeometryOp = std::function<Image(const Image&, const Numbers&, const AffineOptions&)>;

template <Image (*op)(Image)>
Image plain(const Image& image, const Numbers& /*none*/) {
  return op(image);
}
template <Image (*op)(Image, double)>
Image with_factor(const Image& image, const Numbers& n) {
  return op(image, n.at(0));
}
template <Image (*op)(Image, double, const AffineOptions&)>
Image moved(const Image& image, const Numbers& n, const AffineOptions& options) {
  return op(image, n.at(0), options);
}

/// One channel of the grey image, whose three are the same.
Image without_color(Image image) {
  const Image grey = adjust_saturation(std::move(image), 0);
  Image result{.height = grey.height, .width = grey.width, .channels = 1, .pixels = {}};
  for (size_t i = 0; i < grey.pixels.size(); i += static_cast<size_t>(grey.channels)) {
    result.pixels.push_back(grey.pixels[i]);
  }
  return result;
}

const std::map<std::string, ColorOp> kColorOps = {
    {"invert", plain<invert>},
    {"autocontrast", plain<autocontrast>},
    {"equalize", plain<equalize>},
    {"to_grey", plain<without_color>},
    {"hflip", plain<hflip>},
    {"vflip", plain<vflip>},
    {"posterize", [](const Image& image, const Numbers& n) { return posterize(image, static_cast<int64_t>(n.at(0))); }},
    {"solarize", with_factor<solarize>},
    {"solarize_add",
     [](const Image& image, const Numbers& n) {
       return solarize_add(image, static_cast<int64_t>(n.at(0)), static_cast<int64_t>(n.at(1)));
     }},
    {"adjust_brightness", with_factor<adjust_brightness>},
    {"adjust_contrast", with_factor<adjust_contrast>},
    {"adjust_saturation", with_factor<adjust_saturation>},
    {"adjust_sharpness", with_factor<adjust_sharpness>},
    {"adjust_hue", with_factor<adjust_hue>},
};

const std::map<std::string, GeometryOp> kGeometryOps = {
    {"affine",
     [](const Image& image, const Numbers& n, const AffineOptions& options) {
       return affine(image, {n.at(0), n.at(1), n.at(2), n.at(3), n.at(4), n.at(5)}, options);
     }},
    {"rotate", moved<rotate>},
    {"shear_x", moved<shear_x>},
    {"shear_y", moved<shear_y>},
    {"translate_x", moved<translate_x>},
    {"translate_y", moved<translate_y>},
};

const std::map<std::string, Interpolation> kInterpolations = {
    {"nearest", Interpolation::nearest}, {"bilinear", Interpolation::bilinear}, {"bicubic", Interpolation::bicubic}};

}  // namespace

TEST_CASE("augment: the bytes of Pillow") {
  const Safetensors file = load_safetensors(test::source_folder() / "tests" / "reference" / "augment.safetensors");
  const auto cases = nlohmann::json::parse(file.metadata.at("cases"));
  CHECK(cases.size() > 300);
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto& one = cases[i];
    const Image image = image_of(file.find(one.at("image").get<std::string>()));
    const auto op = one.at("op").get<std::string>();
    const auto numbers = one.at("numbers").get<Numbers>();
    Image result;
    if (one.contains("interpolation")) {
      const auto fill = one.at("fill").get<std::vector<uint8_t>>();
      result = kGeometryOps.at(op)(image, numbers,
                                   {.interpolation = kInterpolations.at(one.at("interpolation").get<std::string>()),
                                    .fill = {fill.at(0), fill.at(1), fill.at(2)}});
    } else {
      result = kColorOps.at(op)(image, numbers);
    }
    const Image expected = image_of(file.find(std::to_string(i)));
    INFO("case ", i, ": ", one.dump());
    CHECK(result.height == expected.height);
    CHECK(result.width == expected.width);
    CHECK(result.channels == expected.channels);
    CHECK((result.pixels == expected.pixels));
  }
}

TEST_CASE("augment: one pixel, and what leaves an image as it is") {
  for (const Image& image : {flat(1, 1, {200}), flat(1, 1, {10, 20, 30}), flat(1, 6, {90, 3, 250})}) {
    CHECK(rotate(image, 360).pixels == image.pixels);
    CHECK(hflip(image).pixels == image.pixels);
    CHECK(equalize(image).pixels == image.pixels);
    CHECK(autocontrast(image).pixels == image.pixels);
    CHECK(adjust_sharpness(image, 1.7).pixels == image.pixels);
    for (const auto interpolation : {Interpolation::nearest, Interpolation::bilinear, Interpolation::bicubic}) {
      CHECK(shear_x(image, 0, {.interpolation = interpolation}).pixels == image.pixels);
      const Image outside = translate_y(image, 1, {.interpolation = interpolation, .fill = {7, 8, 9}});
      CHECK(int{outside.at(0, 0, 0)} == 7);
      CHECK(int{outside.at(0, 0, image.channels - 1)} == (image.channels == 3 ? 9 : 7));
    }
  }
  const Image grey = flat(3, 3, {100});
  CHECK(adjust_hue(grey, 0.4).pixels == grey.pixels);
  CHECK(adjust_saturation(grey, 0).pixels == grey.pixels);
  CHECK(posterize(grey, 0).pixels == flat(3, 3, {0}).pixels);
}

TEST_CASE("augment: errors of image ops") {
  const Image image = flat(2, 2, {1, 2, 3});
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(error_of([&] { rotate({}, 3); }) == "rotate: image: expected pixels of 1 or 3 channels, got 0 x 0 of 3");
  CHECK(error_of([&] { rotate(image, nan); }) == "rotate: degrees: expected a finite number, got nan");
  CHECK(error_of([&] { shear_x(image, nan); }) == "affine: matrix: expected finite numbers, got nan");
  CHECK(error_of([&] { posterize(image, 9); }) == "posterize: bits: expected a whole number from 0 to 8, got 9");
  CHECK(error_of([&] { adjust_contrast(image, -0.5); }) ==
        "adjust_contrast: factor: expected a number from 0 to 1000, got -0.5");
  CHECK(error_of([&] { adjust_hue(image, 0.6); }) == "adjust_hue: factor: expected a number from -0.5 to 0.5, got 0.6");
}

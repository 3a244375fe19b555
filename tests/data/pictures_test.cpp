#include "data/dataset.h"
#include "data/image_file.h"
#include "data/image_formats.h"
#include "data/safetensors.h"
#include "files.h"
#include "paths.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::data;
using namespace norma::test;

namespace {

std::string bytes_of(const Tensor& x) {
  const std::vector<uint8_t> bytes = x.to_vector<uint8_t>();
  return {bytes.begin(), bytes.end()};
}

struct Pictures {
  Safetensors file = load_safetensors(source_folder() / "tests" / "reference" / "pictures.safetensors");
  std::vector<std::string> names = nlohmann::json::parse(file.metadata.at("cases")).get<std::vector<std::string>>();

  [[nodiscard]] std::string of(const std::string& name) const { return bytes_of(file.find(name + ".file")); }
};

/// The kinds that this build reads; "jpeg" for "jpeg, turned".
bool is_read(const std::string& name) {
  std::string kind = name.substr(0, name.find(','));
  std::transform(kind.begin(), kind.end(), kind.begin(), [](char c) { return static_cast<char>(std::toupper(c)); });
  return read_kinds().find(kind == "WEBP" ? "WebP" : kind) != std::string::npos;
}

bool is_like(const Image& image, const Tensor& expected, int most) {
  const std::vector<uint8_t> pixels = expected.to_vector<uint8_t>();
  REQUIRE(Sizes{image.height, image.width, image.channels} == expected.sizes());
  return std::equal(pixels.begin(), pixels.end(), image.pixels.begin(),
                    [&](int a, int b) { return std::abs(a - b) <= most; });
}

}  // namespace

TEST_CASE("pictures: PNG, BMP, WebP, TIFF and GIF of every kind have the pixels of Pillow, in color and grey") {
  const Pictures pictures;
  CHECK(pictures.names.size() == 51);
  for (const std::string& name : pictures.names) {
    CAPTURE(name);
    if (!is_read(name)) {
      continue;
    }
    Image image;
    image.orientation = 7;
    decode_image(pictures.of(name), name, 3, image);
    CHECK(is_like(image, pictures.file.find(name + ".color"), name == "tiff, cmyk" ? 1 : 0));
    Image grey;
    decode_image(pictures.of(name), name, 1, grey);
    REQUIRE(grey.pixels.size() * 3 == image.pixels.size());
    bool good = true;
    for (size_t i = 0; i < grey.pixels.size() && !name.starts_with("jpeg"); ++i) {
      const uint8_t* const c = &image.pixels[3 * i];
      good = good &&
             int{grey.pixels[i]} == (c[0] == c[1] && c[1] == c[2] ? c[0] : (77 * c[0] + 150 * c[1] + 29 * c[2]) >> 8);
    }
    CHECK(good);
  }
}

TEST_CASE("pictures: EXIF's orientation is read from JPEG, PNG and WebP, and turns and mirrors on demand") {
  const Pictures pictures;
  int turned = 0;
  for (const std::string& name : pictures.names) {
    CAPTURE(name);
    if (!is_read(name)) {
      continue;
    }
    Image image;
    decode_image(pictures.of(name), name, 3, image);
    if (!pictures.file.find(name + ".turned").defined()) {
      CHECK(image.orientation == 1);  // a TIFF's is applied, as Pillow does
      continue;
    }
    ++turned;
    const char last = name.back();
    CHECK(image.orientation == (last == 'd' ? 6 : last - '0'));
    turn_upright(image);
    CHECK(image.orientation == 1);
    CHECK(is_like(image, pictures.file.find(name + ".turned"), 0));
  }
  CHECK(turned == 7 + (is_read("webp") ? 1 : 0) + (is_read("jpeg") ? 1 : 0));
}

TEST_CASE("pictures: damaged and cut files end with a line, whatever byte is wrong") {
  const Pictures pictures;
  for (const std::string& name : pictures.names) {
    CAPTURE(name);
    const std::string whole = pictures.of(name);
    if (!is_read(name) || name == "png, 2 x 3000" || name == "tiff, two pages") {
      continue;
    }
    for (size_t i = 0; i < whole.size(); ++i) {
      std::string wrong = whole;
      wrong[i] = static_cast<char>(wrong[i] ^ (i % 2 == 0 ? 0xFF : 0x10));
      for (const std::string& bytes : {whole.substr(0, i), wrong}) {
        Image image;
        const std::string text = error_of([&] { decode_image(bytes, "x", 3, image); });
        CHECK_MESSAGE((text == "no error" || text.starts_with("image: x: ")), text);
        CHECK_MESSAGE((bytes.size() > whole.size() / 2 || text != "no error"), i);
      }
    }
  }
}

TEST_CASE("gif: a transparent color beyond the palette is black, and a small file claims no large frame" *
          doctest::skip(!is_read("gif"))) {
  using namespace std::string_literals;
  // 4 x 2 pixels of a palette of 2, with a frame of 2 x 1 at (1, 0). Pillow 13 gives these pixels.
  const auto gif = [](char transparent, char last_code) {
    std::string bytes =
        "GIF89a\4\0\2\0\x80\0\0\x0A\x14\x1E\xC8\x64\x32"
        "!\xF9\4\1\0\0_\0,\1\0\0\0\2\0\1\0\0\2\2\4_\0;"s;
    bytes[bytes.find('_')] = transparent;
    bytes[bytes.rfind('_')] = last_code;
    return bytes;
  };
  const std::vector<uint8_t> first{10, 20, 30};
  const std::vector<uint8_t> second{200, 100, 50};
  const auto decoded = [&](const std::string& bytes) {
    Image image;
    decode_image(bytes, "x", 3, image);
    REQUIRE((image.height == 2 && image.width == 4));
    std::vector<std::vector<uint8_t>> pixels;
    for (size_t i = 0; i < image.pixels.size(); i += 3) {
      pixels.emplace_back(image.pixels.begin() + static_cast<int64_t>(i),
                          image.pixels.begin() + static_cast<int64_t>(i) + 3);
    }
    return pixels;
  };
  const auto expected = [&](const std::vector<uint8_t>& free, const std::vector<uint8_t>& last) {
    return std::vector<std::vector<uint8_t>>{free, first, last, free, free, free, free, free};
  };
  const std::vector<uint8_t> black{0, 0, 0};
  CHECK(decoded(gif('\1', 'S')) == expected(second, second));
  CHECK(decoded(gif('\5', 'S')) == expected(black, second));
  CHECK(decoded(gif('\xFF', 'S')) == expected(black, second));
  CHECK(decoded(gif('\3', 'W')) == expected(black, black));  // W: the last pixel has color 3
  Image image;
  CHECK(error_of([&] { decode_image(gif('\1', 'W'), "x", 3, image); }) ==
        "image: x: damaged: a pixel has color 3 of a palette of 2");
  std::string large = gif('\1', 'S');
  large.replace(large.find(',') + 5, 4, "\x10\x27\x10\x27");  // a frame of 10,000 x 10,000
  Image none;
  CHECK(error_of([&] { decode_image(large, "x", 3, none); }) == "image: x: damaged: it ends early");
  CHECK(none.pixels.capacity() == 0);
}

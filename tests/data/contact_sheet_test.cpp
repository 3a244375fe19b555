#include "data/survey.h"
#include "error_text.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

using namespace norma;
using namespace norma::data;
using norma::test::error_of;

namespace {

Image numbered(int64_t height, int64_t width, int64_t channels, int first) {
  Image image;
  image.set_size(height, width, channels);
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    image.pixels[i] = static_cast<uint8_t>(first + static_cast<int>(i));
  }
  return image;
}

}  // namespace

TEST_CASE("contact_sheet: images in rows, white between them, small ones enlarged") {
  const std::vector<Image> images = {numbered(2, 3, 3, 10), numbered(2, 3, 3, 40), numbered(2, 3, 3, 70)};
  const Image sheet = contact_sheet(images, {.gap = 1, .least_side = 3});
  CHECK(sheet.height == 11);  // two rows of 2 · 2 pixels
  CHECK(sheet.width == 15);
  CHECK(sheet.channels == 3);
  for (int64_t y = 0; y < sheet.height; ++y) {
    for (int64_t x = 0; x < sheet.width; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        const int64_t row = (y - 1) / 5;
        const int64_t column = (x - 1) / 7;
        const int64_t index = row * 2 + column;
        const bool inside = y % 5 != 0 && x % 7 != 0 && index < 3;
        const int64_t pixel = (y - 1) % 5 / 2 * 3 + (x - 1) % 7 / 2;
        CHECK(int64_t{sheet.at(y, x, c)} == (inside ? 10 + 30 * index + 3 * pixel + c : 255));
      }
    }
  }
}

TEST_CASE("contact_sheet: one grey image, columns, and errors") {
  const std::vector<Image> grey = {numbered(1, 1, 1, 9)};
  const Image one = contact_sheet(grey, {.gap = 0});
  CHECK(one.pixels == std::vector<uint8_t>{9, 9, 9});
  const std::vector<Image> five(5, grey[0]);
  CHECK(contact_sheet(five, {.columns = 4, .gap = 0}).width == 4);
  CHECK(contact_sheet(five, {.columns = 40, .gap = 0}).height == 1);
  CHECK(error_of([] { contact_sheet({}); }) == "contact_sheet: images: expected at least 1, got none");
  const std::vector<Image> two = {numbered(1, 1, 1, 9), numbered(1, 2, 1, 9)};
  CHECK(error_of([&] { contact_sheet(two); }) == "contact_sheet: images: expected all of 1 x 1 pixels, got 1 x 2");
  CHECK(error_of([&] { contact_sheet(grey, {.gap = -1}); }) ==
        "contact_sheet: options: expected numbers from 0 to 134217728, got columns 0, gap -1, least_side 0");
  CHECK(error_of([&] { contact_sheet(grey, {.least_side = 12000}); }) ==
        "contact_sheet: images: expected at most 134217728 pixels together, got 1 rows and 1 columns of 12002 x 12002");
}

#include "data/image_formats.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace norma::data {

using namespace std::string_view_literals;

// EXIF data are a small TIFF: a byte order, 42, the place of a table, and there a count and as many entries of 12
// bytes: tag, type, count, value.
int exif_orientation(std::string_view exif) {
  if (exif.starts_with("Exif\0\0"sv)) {
    exif.remove_prefix(6);
  }
  const bool little = exif.starts_with("II"sv);
  const auto number = [&](size_t at, size_t count) {
    size_t value = 0;
    for (size_t i = 0; i < count && at + count <= exif.size(); ++i) {
      value = value << 8 | static_cast<uint8_t>(exif[little ? at + count - 1 - i : at + i]);
    }
    return value;
  };
  constexpr size_t kOrientation = 0x0112;
  constexpr size_t kShort = 3;
  const size_t table = number(4, 4);
  for (size_t i = 0; (little || exif.starts_with("MM"sv)) && i < number(table, 2); ++i) {
    const size_t entry = table + 2 + 12 * i;
    if (const size_t value = number(entry + 8, 2); number(entry, 2) == kOrientation && number(entry + 2, 2) == kShort) {
      return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    }
  }
  return 1;
}

void turn_upright(Image& image) {
  const int orientation = std::exchange(image.orientation, 1);
  if (orientation == 1) {
    return;
  }
  const bool transposed = orientation >= 5;
  const bool from_below = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool from_right = orientation == 2 || orientation == 3 || orientation >= 7;
  Image upright;
  upright.set_size(transposed ? image.width : image.height, transposed ? image.height : image.width, image.channels);
  uint8_t* to = upright.pixels.data();
  for (int64_t y = 0; y < upright.height; ++y) {
    for (int64_t x = 0; x < upright.width; ++x, to += image.channels) {
      const int64_t row = transposed ? x : y;
      const int64_t column = transposed ? y : x;
      const int64_t from =
          (from_below ? image.height - 1 - row : row) * image.width + (from_right ? image.width - 1 - column : column);
      std::copy_n(image.pixels.data() + from * image.channels, image.channels, to);
    }
  }
  image = std::move(upright);
}

}  // namespace norma::data

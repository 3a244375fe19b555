#include "data/augment/geometry.h"

#include "base/error.h"
#include "base/parse_number.h"
#include "data/augment/interpolate_kernels.h"
#include "data/kept.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>
#include <vector>

namespace norma::data {

namespace {

constexpr const char* kOp = "affine";

using Matrix = std::array<double, 6>;

/// Sets the sizes, and every pixel to this color.
void fill_with(const Color& fill, int64_t height, int64_t width, int64_t channels, Image& image) {
  image.set_size(height, width, channels);
  const auto row = image.pixels.begin() + width * channels;
  for (auto pixel = image.pixels.begin(); pixel != row; pixel += channels) {
    std::copy_n(fill.begin(), channels, pixel);
  }
  for (auto next = row; next != image.pixels.end(); next += width * channels) {
    std::copy(image.pixels.begin(), row, next);
  }
}

void copy_pixel(const Image& image, int64_t y, int64_t x, uint8_t* to) {
  std::copy_n(image.pixels.begin() + (y * image.width + x) * image.channels, image.channels, to);
}

/// The pixel that contains a place along an axis of `length` pixels; -1 outside.
int64_t pixel_at(double place, int64_t length) {
  return place >= 0 && place < static_cast<double>(length) ? static_cast<int64_t>(place) : -1;
}

// Nearest pixels are found by three ways of adding, whose roundings differ. As in Pillow, the first way that fits is
// taken.

/// For matrices that keep rows and columns apart.
void nearest_scaled(const Image& image, const Matrix& m, Image& result) {
  std::vector<int64_t> columns;
  double place = m[2] + m[0] * 0.5;
  for (int64_t x = 0; x < image.width; ++x) {
    columns.push_back(pixel_at(place, image.width));
    place += m[0];
  }
  uint8_t* to = result.pixels.data();
  place = m[5] + m[4] * 0.5;
  for (int64_t y = 0; y < image.height; ++y) {
    const int64_t row = pixel_at(place, image.height);
    for (const int64_t column : columns) {
      if (row >= 0 && column >= 0) {
        copy_pixel(image, row, column, to);
      }
      to += image.channels;
    }
    place += m[4];
  }
}

/// True iff whole numbers of 2^-16 pixels hold all places.
bool fits_fixed(const Image& image, const Matrix& m) {
  for (const auto y : {int64_t{0}, image.height}) {
    for (const auto x : {int64_t{0}, image.width}) {
      const auto xx = static_cast<double>(x);
      const auto yy = static_cast<double>(y);
      if (std::abs(xx * m[0] + yy * m[1] + m[2]) >= 32768 || std::abs(xx * m[3] + yy * m[4] + m[5]) >= 32768) {
        return false;
      }
    }
  }
  return true;
}

/// Adds step by step; `Number` is int64_t for units of 2^-16 pixels, or double.
template <class Number, class PixelAt>
void nearest_stepped(const Image& image, const std::array<Number, 6>& m, PixelAt pixel_of, Image& result) {
  uint8_t* to = result.pixels.data();
  Number row_x = m[2];
  Number row_y = m[5];
  for (int64_t y = 0; y < image.height; ++y) {
    Number place_x = row_x;
    Number place_y = row_y;
    for (int64_t x = 0; x < image.width; ++x) {
      const int64_t column = pixel_of(place_x, image.width);
      const int64_t row = pixel_of(place_y, image.height);
      if (column >= 0 && row >= 0) {
        copy_pixel(image, row, column, to);
      }
      to += image.channels;
      place_x += m[0];
      place_y += m[3];
    }
    row_x += m[1];
    row_y += m[4];
  }
}

void nearest(const Image& image, const Matrix& m, Image& result) {
  if (m[1] == 0 && m[3] == 0) {
    nearest_scaled(image, m, result);
    return;
  }
  // The middle of the first pixel.
  const double x = m[2] + m[0] * 0.5 + m[1] * 0.5;
  const double y = m[5] + m[3] * 0.5 + m[4] * 0.5;
  if (fits_fixed(image, m)) {
    const auto fixed = [](double v) { return static_cast<int64_t>(std::floor(v * 65536.0 + 0.5)); };
    const auto pixel_of = [](int64_t place, int64_t length) {
      const int64_t pixel = place >> 16;
      return pixel < length ? std::max<int64_t>(pixel, -1) : -1;
    };
    nearest_stepped<int64_t>(image, {fixed(m[0]), fixed(m[1]), fixed(x), fixed(m[3]), fixed(m[4]), fixed(y)}, pixel_of,
                             result);
  } else {
    nearest_stepped<double>(image,
                            {m[0], m[1], m[2] + m[1] * 0.5 + m[0] * 0.5, m[3], m[4], m[5] + m[4] * 0.5 + m[3] * 0.5},
                            pixel_at, result);
  }
}

/// The nearest number with 15 digits after the point: Python's round(x, 15).
double rounded_15(double x) {
  return parse_number<double>(fmt::format("{:.15f}", x)).value_or(0);
}

}  // namespace

Image affine(Image image, const std::array<double, 6>& matrix, const AffineOptions& options) {
  check_image(kOp, image);
  for (const double number : matrix) {
    check(std::isfinite(number), kOp, "matrix: expected finite numbers, got {}", number);
  }
  // The old pixels stay in a buffer that the next image's get, so that no memory is asked for.
  static KeptByThread<Image> kept;
  Image& old = kept.get();
  std::swap(old, image);
  fill_with(options.fill, old.height, old.width, old.channels, image);
  image.orientation = 1;
  if (options.interpolation == Interpolation::nearest) {
    nearest(old, matrix, image);
  } else {
    old.pixels.push_back(0);  // the interpolation reads it with the last pixel
    const Interpolation2d job = {.from = old.pixels.data(),
                                 .to = image.pixels.data(),
                                 .height = image.height,
                                 .width = image.width,
                                 .channels = image.channels,
                                 .matrix = matrix};
    if (options.interpolation == Interpolation::bicubic) {
      interpolate_bicubic(job);
    } else {
      interpolate_bilinear(job);
    }
  }
  return image;
}

Image rotate(Image image, double degrees, const AffineOptions& options) {
  check_image("rotate", image);
  check(std::isfinite(degrees), "rotate", "degrees: expected a finite number, got {}", degrees);
  double angle = std::fmod(degrees, 360.0);
  if (angle < 0) {
    angle += 360.0;
  }
  if (angle == 0) {
    return image;
  }
  if (angle == 180) {
    return hflip(vflip(std::move(image)));
  }
  if ((angle == 90 || angle == 270) && image.height == image.width) {
    Image result = image;
    for (int64_t y = 0; y < image.height; ++y) {
      for (int64_t x = 0; x < image.width; ++x) {
        const int64_t to =
            angle == 90 ? (image.width - 1 - x) * image.width + y : x * image.width + image.height - 1 - y;
        copy_pixel(image, y, x, result.pixels.data() + to * image.channels);
      }
    }
    return result;
  }
  const double radians = -(angle * (std::numbers::pi / 180.0));
  const double cosine = rounded_15(std::cos(radians));
  const double sine = rounded_15(std::sin(radians));
  const double x = static_cast<double>(image.width) / 2;
  const double y = static_cast<double>(image.height) / 2;
  return affine(std::move(image),
                {cosine, sine, cosine * -x + sine * -y + 0.0 + x, -sine, cosine, -sine * -x + cosine * -y + 0.0 + y},
                options);
}

Image shear_x(Image image, double factor, const AffineOptions& options) {
  return affine(std::move(image), {1, factor, 0, 0, 1, 0}, options);
}
Image shear_y(Image image, double factor, const AffineOptions& options) {
  return affine(std::move(image), {1, 0, 0, factor, 1, 0}, options);
}
Image translate_x(Image image, double pixels, const AffineOptions& options) {
  return affine(std::move(image), {1, 0, pixels, 0, 1, 0}, options);
}
Image translate_y(Image image, double pixels, const AffineOptions& options) {
  return affine(std::move(image), {1, 0, 0, 0, 1, pixels}, options);
}

Image hflip(Image image) {
  check_image("hflip", image);
  const int64_t row_bytes = image.width * image.channels;
  for (int64_t y = 0; y < image.height; ++y) {
    uint8_t* left = image.pixels.data() + y * row_bytes;
    for (uint8_t* right = left + row_bytes - image.channels; left < right; right -= image.channels) {
      std::swap_ranges(left, left + image.channels, right);
      left += image.channels;
    }
  }
  return image;
}

Image vflip(Image image) {
  check_image("vflip", image);
  const int64_t row_bytes = image.width * image.channels;
  for (int64_t y = 0; y < image.height / 2; ++y) {
    const auto row = image.pixels.begin() + y * row_bytes;
    std::swap_ranges(row, row + row_bytes, image.pixels.end() - (y + 1) * row_bytes);
  }
  return image;
}

}  // namespace norma::data

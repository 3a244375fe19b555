#include "data/resize.h"

#include "core/error.h"
#include "data/pixel_vector.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace norma::data {

namespace {

constexpr const char* kOp = "resize";
/// Of a size to crop from: no more of the resized image is computed than the crop.
constexpr int64_t kMaxSide = int64_t{1} << 27;

/// Weights are whole numbers of 2^-22: with 8 bits of a pixel and a sum that may overshoot by a half, 32 bits hold
/// them.
constexpr int kFractionBits = 22;

double triangle(double x) {
  return std::max(0.0, 1 - std::abs(x));
}

/// w(x) = (a + 2)|x|³ - (a + 3)|x|² + 1 up to 1, a|x|³ - 5a|x|² + 8a|x| - 4a up to 2.
double keys(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) {
    return ((a + 2) * x - (a + 3)) * x * x + 1;
  }
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/// What one new pixel is made of along an axis.
struct Window {
  int64_t first = 0;
  std::vector<int32_t> weights;
};

/// For the new pixels from `begin` up to `end`, out of `to`.
std::vector<Window> windows_of(int64_t from, int64_t to, int64_t begin, int64_t end, ResizeFilter filter) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double wider = std::max(scale, 1.0);
  const double support = (filter == ResizeFilter::bilinear ? 1 : 2) * wider;
  std::vector<Window> windows(static_cast<size_t>(end - begin));
  std::vector<double> weights;
  for (int64_t i = begin; i < end; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const auto first = static_cast<int64_t>(std::max(0.0, centre - support + 0.5));
    const auto last = std::min(from, static_cast<int64_t>(std::floor(centre + support + 0.5)));
    weights.clear();
    double sum = 0;
    for (int64_t j = first; j < last; ++j) {
      const double x = (static_cast<double>(j) - centre + 0.5) / wider;
      weights.push_back(filter == ResizeFilter::bilinear ? triangle(x) : keys(x));
      sum += weights.back();
    }
    Window& window = windows[static_cast<size_t>(i - begin)];
    window.first = first;
    for (const double weight : weights) {
      window.weights.push_back(static_cast<int32_t>(std::round(weight / sum * (1 << kFractionBits))));
    }
  }
  return windows;
}

uint8_t rounded(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kFractionBits, 0, 255));
}

constexpr int32_t kHalf = 1 << (kFractionBits - 1);

/// One new pixel of a grey row.
void resize_pixel(const uint8_t* from, const Window& window, uint8_t*& to,
                  std::integral_constant<int64_t, 1> /*grey*/) {
  int32_t sum = kHalf;
  for (const int32_t weight : window.weights) {
    sum += weight * *from++;
  }
  *to++ = rounded(sum);
}

/// One of a row in colour, behind whose last pixel there is another byte.
void resize_pixel(const uint8_t* from, const Window& window, uint8_t*& to, std::integral_constant<int64_t, 3> /*rgb*/) {
  Ints4 sums = {kHalf, kHalf, kHalf, kHalf};
  for (const int32_t weight : window.weights) {
    Ints4 pixel{};
    load_pixel(from, pixel);
    sums += weight * pixel;
    from += 3;
  }
  for (int c = 0; c < 3; ++c) {
    *to++ = rounded(sums[c]);
  }
}

/// The rows of `image` from `begin` up to `end`, each with these new pixels.
template <int64_t kChannels>
Image resize_rows(const Image& image, int64_t begin, int64_t end, const std::vector<Window>& windows) {
  const int64_t row_bytes = image.width * kChannels;
  std::vector<uint8_t> pixels(static_cast<size_t>((end - begin) * row_bytes + 1));  // and a byte that may be read
  std::copy_n(image.pixels.begin() + begin * row_bytes, (end - begin) * row_bytes, pixels.begin());
  Image result;
  result.set_size(end - begin, static_cast<int64_t>(windows.size()), kChannels);
  uint8_t* to = result.pixels.data();
  for (int64_t y = 0; y < end - begin; ++y) {
    for (const Window& window : windows) {
      resize_pixel(pixels.data() + y * row_bytes + window.first * kChannels, window, to,
                   std::integral_constant<int64_t, kChannels>());
    }
  }
  return result;
}

/// New rows by their windows; the first row of `image` is that of number `begin` in them.
Image resize_columns(const Image& image, int64_t begin, const std::vector<Window>& windows) {
  Image result;
  result.set_size(static_cast<int64_t>(windows.size()), image.width, image.channels);
  const int64_t row_bytes = image.width * image.channels;
  std::vector<int32_t> sums(static_cast<size_t>(row_bytes));
  uint8_t* to = result.pixels.data();
  for (const Window& window : windows) {
    std::fill(sums.begin(), sums.end(), kHalf);
    const uint8_t* from = image.pixels.data() + (window.first - begin) * row_bytes;
    for (const int32_t weight : window.weights) {
      for (int64_t i = 0; i < row_bytes; ++i) {
        sums[static_cast<size_t>(i)] += weight * from[i];
      }
      from += row_bytes;
    }
    to = std::transform(sums.begin(), sums.end(), to, rounded);
  }
  return result;
}

struct Stretch {
  int64_t begin;
  int64_t end;
};

/// These rows and columns of the image in the size height x width; nothing else of it is computed.
Image resize_part(const Image& image, int64_t height, int64_t width, Stretch rows, Stretch columns,
                  ResizeFilter filter) {
  const std::vector<Window> vertical = windows_of(image.height, height, rows.begin, rows.end, filter);
  const std::vector<Window> horizontal = windows_of(image.width, width, columns.begin, columns.end, filter);
  const int64_t first = vertical.front().first;  // windows begin and end in ascending order
  const int64_t last = vertical.back().first + static_cast<int64_t>(vertical.back().weights.size());
  const auto rows_of = image.channels == 3 ? resize_rows<3> : resize_rows<1>;
  return resize_columns(rows_of(image, first, last, horizontal), first, vertical);
}

}  // namespace

Image resize(const Image& image, int64_t height, int64_t width, ResizeFilter filter) {
  check_image(kOp, image);
  check(height > 0 && width > 0 && height <= kMaxImagePixels / width, kOp,
        "sizes: expected at least 1 and at most {} pixels, got {} x {}", kMaxImagePixels, height, width);
  if (image.height == height && image.width == width) {
    return image;
  }
  return resize_part(image, height, width, {0, height}, {0, width}, filter);
}

Image crop(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width) {
  check_image("crop", image);
  check(top >= 0 && left >= 0 && height > 0 && width > 0 && top <= image.height - height && left <= image.width - width,
        "crop", "expected a window inside {} x {} pixels, got {} x {} from row {} and column {} on", image.height,
        image.width, height, width, top, left);
  Image result{.height = height, .width = width, .channels = image.channels, .pixels = {}};
  result.pixels.reserve(static_cast<size_t>(height * width * image.channels));
  for (int64_t y = top; y < top + height; ++y) {
    const auto row = image.pixels.begin() + (y * image.width + left) * image.channels;
    result.pixels.insert(result.pixels.end(), row, row + width * image.channels);
  }
  return result;
}

Image resize_and_crop(const Image& image, int64_t size, int64_t crop_size, ResizeFilter filter) {
  check_image(kOp, image);
  check(crop_size >= 1 && crop_size <= size, kOp, "crop_size: expected a number from 1 to {}, the size, got {}", size,
        crop_size);
  check(size <= kMaxSide, kOp, "size: expected at most {}, got {}", kMaxSide, size);
  const int64_t shorter = std::min(image.height, image.width);
  const int64_t height = image.height * size / shorter;
  const int64_t width = image.width * size / shorter;
  const auto middle = [&](int64_t length) {  // a half goes to the even number, as Python's round() has it
    const int64_t begin = std::lrint(static_cast<double>(length - crop_size) / 2);
    return Stretch{begin, begin + crop_size};
  };
  return resize_part(image, height, width, middle(height), middle(width), filter);
}

}  // namespace norma::data

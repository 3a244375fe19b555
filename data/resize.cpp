#include "data/resize.h"

#include "base/error.h"
#include "data/kept.h"
#include "data/resize_kernels.h"

#include <algorithm>
#include <cmath>

namespace norma::data {

namespace {

constexpr const char* kOp = "resize";
/// The largest size to crop from. It may be large, since only the crop of the resized image is computed.
constexpr int64_t kMaxSide = int64_t{1} << 27;

double triangle(double x) {
  return std::max(0.0, 1 - std::abs(x));
}

/// Keys's cubic: w(x) = (a + 2)|x|³ - (a + 3)|x|² + 1 up to 1, a|x|³ - 5a|x|² + 8a|x| - 4a up to 2.
double keys(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) {
    return ((a + 2) * x - (a + 3)) * x * x + 1;
  }
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/// The same windows in the kernels' integers.
std::vector<ResizeWindow> windows_of(int64_t from, int64_t to, int64_t begin, int64_t end, ResizeFilter filter) {
  std::vector<ResizeWindow> windows;
  windows.reserve(static_cast<size_t>(end - begin));
  for (const FilterWindow& exact : filter_windows(from, to, begin, end, filter)) {
    ResizeWindow& window = windows.emplace_back();
    window.first = exact.first;
    window.weights.reserve(exact.weights.size());
    for (const double weight : exact.weights) {
      window.weights.push_back(static_cast<int32_t>(std::round(weight * (1 << kResizeFractionBits))));
    }
  }
  return windows;
}

/// The part of `image` resized along its rows, and one byte more.
void resize_part_rows(const Image& image, const Rectangle& part, const std::vector<ResizeWindow>& windows,
                      std::vector<uint8_t>& to) {
  const int64_t row_bytes = image.width * image.channels;
  const int64_t new_bytes = static_cast<int64_t>(windows.size()) * image.channels;
  const int64_t used = part.width * image.channels;
  const uint8_t* const pixels = image.pixels.data() + part.top * row_bytes + part.left * image.channels;
  to.resize(std::max(to.size(), static_cast<size_t>(part.height * new_bytes + 1)));
  // The rows that end so near the last pixel that reading passes it are read from a copy with room after it.
  const int64_t room = image.pixels.data() + image.pixels.size() - pixels - used - kResizeReadsBehind;
  const int64_t safe = room < 0 ? 0 : std::min(part.height, room / row_bytes + 1);
  resize_rows({.pixels = pixels, .count = safe, .bytes = row_bytes, .channels = image.channels}, windows, to.data());
  std::vector<uint8_t> copy(static_cast<size_t>(used + kResizeReadsBehind));
  for (int64_t y = safe; y < part.height; ++y) {
    std::copy_n(pixels + y * row_bytes, used, copy.begin());
    resize_rows({.pixels = copy.data(), .count = 1, .bytes = used, .channels = image.channels}, windows,
                to.data() + y * new_bytes);
  }
}

struct Stretch {
  int64_t begin;
  int64_t end;
};

/// Resizes only these rows and columns of an image, the window, that would become height x width.
void resize_part(const Image& image, const Rectangle& window, int64_t height, int64_t width, Stretch rows,
                 Stretch columns, ResizeFilter filter, const Flips& flips, Image& result) {
  std::vector<ResizeWindow> vertical = windows_of(window.height, height, rows.begin, rows.end, filter);
  std::vector<ResizeWindow> horizontal = windows_of(window.width, width, columns.begin, columns.end, filter);
  const int64_t first = vertical.front().first;  // windows begin and end in ascending order
  const int64_t last = vertical.back().first + static_cast<int64_t>(vertical.back().weights.size());
  if (flips.across) {
    std::ranges::reverse(horizontal);
  }
  if (flips.down) {
    std::ranges::reverse(vertical);
  }
  static KeptByThread<std::vector<uint8_t>> kept;
  std::vector<uint8_t>& wide = kept.get();
  resize_part_rows(image,
                   {.top = window.top + first, .left = window.left, .height = last - first, .width = window.width},
                   horizontal, wide);
  result.orientation = 1;
  result.set_size(rows.end - rows.begin, columns.end - columns.begin, image.channels);
  resize_columns({.pixels = wide.data(),
                  .count = last - first,
                  .bytes = result.width * result.channels,
                  .channels = result.channels},
                 first, vertical, result.pixels.data());
}

Rectangle all_of(const Image& image) {
  return {.height = image.height, .width = image.width};
}

void check_window(const char* op, const Image& image, const Rectangle& window) {
  const auto& [top, left, height, width] = window;
  check(top >= 0 && left >= 0 && height > 0 && width > 0 && top <= image.height - height && left <= image.width - width,
        op, "expected a window inside {} x {} pixels, got {} x {} from row {} and column {} on", image.height,
        image.width, height, width, top, left);
}

void check_sizes(int64_t height, int64_t width) {
  check(height > 0 && width > 0 && height <= kMaxImagePixels / width, kOp,
        "sizes: expected at least 1 and at most {} pixels, got {} x {}", kMaxImagePixels, height, width);
}

}  // namespace

std::vector<FilterWindow> filter_windows(int64_t from, int64_t to, int64_t begin, int64_t end, ResizeFilter filter) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double wider = std::max(scale, 1.0);
  const double support = (filter == ResizeFilter::bilinear ? 1 : 2) * wider;
  std::vector<FilterWindow> windows(static_cast<size_t>(end - begin));
  for (int64_t i = begin; i < end; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const auto first = static_cast<int64_t>(std::max(0.0, centre - support + 0.5));
    const auto last = std::min(from, static_cast<int64_t>(std::floor(centre + support + 0.5)));
    FilterWindow& window = windows[static_cast<size_t>(i - begin)];
    window.first = first;
    window.weights.reserve(static_cast<size_t>(std::max<int64_t>(last - first, 0)));
    double sum = 0;
    for (int64_t j = first; j < last; ++j) {
      const double x = (static_cast<double>(j) - centre + 0.5) / wider;
      window.weights.push_back(filter == ResizeFilter::bilinear ? triangle(x) : keys(x));
      sum += window.weights.back();
    }
    for (double& weight : window.weights) {
      weight /= sum;
    }
  }
  return windows;
}

Image resize(const Image& image, int64_t height, int64_t width, ResizeFilter filter) {
  check_image(kOp, image);
  check_sizes(height, width);
  if (image.height == height && image.width == width) {
    return image;
  }
  Image result;
  resize_part(image, all_of(image), height, width, {0, height}, {0, width}, filter, {}, result);
  return result;
}

void resize_window(const Image& image, const Rectangle& window, int64_t height, int64_t width, ResizeFilter filter,
                   const Flips& flips, Image& result) {
  check_image(kOp, image);
  check_sizes(height, width);
  check_window(kOp, image, window);
  resize_part(image, window, height, width, {0, height}, {0, width}, filter, flips, result);
}

Image crop(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width) {
  check_image("crop", image);
  check_window("crop", image, {.top = top, .left = left, .height = height, .width = width});
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
  const auto middle = [&](int64_t length) {  // rounds a half to the even number, as Python's round() does
    const int64_t begin = std::lrint(static_cast<double>(length - crop_size) / 2);
    return Stretch{begin, begin + crop_size};
  };
  Image result;
  resize_part(image, all_of(image), height, width, middle(height), middle(width), filter, {}, result);
  return result;
}

}  // namespace norma::data

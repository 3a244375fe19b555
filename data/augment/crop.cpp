#include "data/augment/crop.h"

#include "base/error.h"
#include "data/resize.h"

#include <algorithm>
#include <cmath>

namespace norma::data {

namespace {

/// Rounds a half to the even number, as Python's round() does, and cuts off numbers beyond all sizes.
int64_t rounded(double x) {
  constexpr double kBeyond = 1e15;
  return std::lrint(std::min(x, kBeyond));
}

}  // namespace

void check_random_resized_crop(const char* op, const RandomResizedCropOptions& options) {
  const auto& [scale, ratio] = options;
  check(scale.low > 0 && scale.low <= scale.high && scale.high <= 1, op,
        "scale: expected two numbers in (0, 1], the lower first, got {} and {}", scale.low, scale.high);
  check(ratio.low > 0 && ratio.low <= ratio.high && std::isfinite(ratio.high), op,
        "ratio: expected two numbers above 0, the lower first, got {} and {}", ratio.low, ratio.high);
}

Rectangle draw_resized_crop(Draw& draw, int64_t height, int64_t width, const RandomResizedCropOptions& options) {
  constexpr const char* op = "random_resized_crop";
  check(height > 0 && width > 0, op, "sizes: expected at least 1, got {} x {}", height, width);
  check_random_resized_crop(op, options);
  const double area = static_cast<double>(height) * static_cast<double>(width);
  const auto& [scale, ratio] = options;
  for (int i = 0; i < 10; ++i) {
    const double target = area * draw.uniform(scale.low, scale.high);
    const double aspect = std::exp(draw.uniform(std::log(ratio.low), std::log(ratio.high)));
    const int64_t w = rounded(std::sqrt(target * aspect));
    const int64_t h = rounded(std::sqrt(target / aspect));
    if (w > 0 && w <= width && h > 0 && h <= height) {
      const int64_t top = draw.integer(0, height - h);
      return {.top = top, .left = draw.integer(0, width - w), .height = h, .width = w};
    }
  }
  const double whole = static_cast<double>(width) / static_cast<double>(height);
  Rectangle window{.height = height, .width = width};
  if (whole < ratio.low) {
    window.height = std::clamp<int64_t>(rounded(static_cast<double>(width) / ratio.low), 1, height);
  } else if (whole > ratio.high) {
    window.width = std::clamp<int64_t>(rounded(static_cast<double>(height) * ratio.high), 1, width);
  }
  window.top = (height - window.height) / 2;
  window.left = (width - window.width) / 2;
  return window;
}

Image random_crop(const Image& image, int64_t height, int64_t width, Draw& draw, const RandomCropOptions& options) {
  const Image padded = options.padding == 0 ? image : pad(image, options.padding, options.fill);
  check_image("random_crop", padded);
  check(height >= 1 && height <= padded.height && width >= 1 && width <= padded.width, "random_crop",
        "sizes: expected at least 1 and at most {} x {}, got {} x {}", padded.height, padded.width, height, width);
  const int64_t top = draw.integer(0, padded.height - height);
  return crop(padded, top, draw.integer(0, padded.width - width), height, width);
}

}  // namespace norma::data

#include "data/augment/rectangles.h"

#include "base/error.h"
#include "base/nearest_name.h"
#include "data/kept.h"

#include <algorithm>
#include <cmath>

namespace norma::data {

namespace {

/// Rounds a half to the even number, as Python's round() does, and cuts off numbers beyond all sizes.
int64_t rounded(double x) {
  constexpr double kBeyond = 1e15;
  return std::lrint(std::min(x, kBeyond));
}

constexpr const char* kErasing = "random_erasing";

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

std::vector<std::string> erasing_mode_names() {
  return {"const", "rand", "pixel"};
}

ErasingMode erasing_mode(std::string_view op, std::string_view name) {
  const std::vector<std::string> names = erasing_mode_names();
  const auto at = std::ranges::find(names, name);
  check(at != names.end(), op, "{}", unknown_name("mode", name, names));
  return static_cast<ErasingMode>(at - names.begin());
}

void check_random_erasing(const char* op, const RandomErasingOptions& options) {
  check_range(op, "probability", options.probability, Range<double>{0, 1});
  check_range(op, "count", options.count, kErasingCount);
  const auto& [low_area, high_area] = options.area;
  const auto& [low_ratio, high_ratio] = options.ratio;
  check(low_area >= 0 && low_area <= high_area && high_area <= 1, op,
        "area: expected two numbers from 0 to 1, the lower first, got {} and {}", low_area, high_area);
  check(low_ratio > 0 && low_ratio <= high_ratio && std::isfinite(high_ratio), op,
        "ratio: expected two numbers above 0, the lower first, got {} and {}", low_ratio, high_ratio);
}

std::vector<Rectangle> draw_erasing(Draw& draw, int64_t height, int64_t width, const RandomErasingOptions& options) {
  check_random_erasing(kErasing, options);
  const auto& [low_area, high_area] = options.area;
  const auto& [low_ratio, high_ratio] = options.ratio;
  std::vector<Rectangle> rectangles;
  if (!draw.chance(options.probability)) {
    return rectangles;
  }
  const int64_t count = draw.integer(1, options.count);
  const double area = static_cast<double>(height) * static_cast<double>(width) / static_cast<double>(count);
  for (int64_t i = 0; i < count; ++i) {
    for (int attempt = 0; attempt < 10; ++attempt) {
      const double target = area * draw.uniform(low_area, high_area);
      const double aspect = std::exp(draw.uniform(std::log(low_ratio), std::log(high_ratio)));
      const double high = std::rint(std::sqrt(target * aspect));  // not whole numbers yet: they may be infinite
      const double wide = std::rint(std::sqrt(target / aspect));
      if (high < static_cast<double>(height) && wide < static_cast<double>(width)) {
        const auto h = static_cast<int64_t>(high);
        const auto w = static_cast<int64_t>(wide);
        const int64_t top = draw.integer(0, height - h);
        rectangles.push_back({.top = top, .left = draw.integer(0, width - w), .height = h, .width = w});
        break;
      }
    }
  }
  return rectangles;
}

void random_erasing(float* image, const std::array<int64_t, 3>& sizes, const std::array<int64_t, 3>& strides,
                    const RandomErasingOptions& options, Draw& draw) {
  static KeptByThread<std::vector<float>> kept;
  std::vector<float>& values = kept.get();
  for (const auto& [top, left, height, width] : draw_erasing(draw, sizes[1], sizes[2], options)) {
    values.resize(static_cast<size_t>(height * width));
    for (int64_t c = 0; c < sizes[0]; ++c) {
      if (options.mode == ErasingMode::pixel) {
        draw.normals(values);
      } else {
        const double value = options.mode == ErasingMode::random ? draw.normal() : 0;
        std::ranges::fill(values, static_cast<float>(value));
      }
      const float* value = values.data();
      for (int64_t y = top; y < top + height; ++y) {
        for (int64_t x = left; x < left + width; ++x) {
          image[c * strides[0] + y * strides[1] + x * strides[2]] = *value++;
        }
      }
    }
  }
}

}  // namespace norma::data

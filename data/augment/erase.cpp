#include "data/augment/erase.h"

#include "base/error.h"
#include "base/nearest_name.h"
#include "base/range.h"

#include <algorithm>
#include <cmath>

namespace norma::data {

namespace {

constexpr const char* kOp = "random_erasing";

}  // namespace

std::vector<std::string> erasing_mode_names() {
  return {"const", "rand", "pixel"};
}

ErasingMode erasing_mode(std::string_view op, std::string_view name) {
  const std::vector<std::string> names = erasing_mode_names();
  const auto at = std::find(names.begin(), names.end(), name);
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
  check_random_erasing(kOp, options);
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
  for (const auto& [top, left, height, width] : draw_erasing(draw, sizes[1], sizes[2], options)) {
    for (int64_t c = 0; c < sizes[0]; ++c) {
      auto value = options.mode == ErasingMode::random ? static_cast<float>(draw.normal()) : 0.0F;
      for (int64_t y = top; y < top + height; ++y) {
        for (int64_t x = left; x < left + width; ++x) {
          if (options.mode == ErasingMode::pixel) {
            value = static_cast<float>(draw.normal());
          }
          image[c * strides[0] + y * strides[1] + x * strides[2]] = value;
        }
      }
    }
  }
}

}  // namespace norma::data

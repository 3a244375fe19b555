#pragma once

#include "core/range.h"
#include "data/augment/crop.h"
#include "data/augment/random.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace norma::data {

inline constexpr Range<int64_t> kErasingCount{1, 100};

/// What comes in place of what is erased.
enum class ErasingMode : uint8_t {
  constant,  ///< 0: the mean, where the image is normalized
  random,    ///< a normal number for each channel
  pixel,     ///< a normal number for each channel of each pixel
};

/// "const", "rand", "pixel", as in timm.
std::vector<std::string> erasing_mode_names();
/// Throws Error "op: unknown mode …".
ErasingMode erasing_mode(std::string_view op, std::string_view name);

/// timm's RandomErasing (Zhong et al., "Random erasing data augmentation", 2017).
struct RandomErasingOptions {
  double probability = 0;  ///< of an image
  ErasingMode mode = ErasingMode::constant;
  int64_t count = 1;                  ///< rectangles in an image: from 1 to this many, drawn evenly
  Interval area = {0.02, 1.0 / 3};    ///< all rectangles' share of the image, drawn evenly
  Interval ratio = {0.3, 1.0 / 0.3};  ///< of height to width; its logarithm is drawn evenly
};

/// Throws Error "op: …" for a probability outside [0, 1], a count outside kErasingCount, and intervals that are none.
void check_random_erasing(const char* op, const RandomErasingOptions& options);

/// The rectangles that are erased from an image of these sizes; none when chance has it so. Each has ten tries to be
/// lower and narrower than the image. Sides are rounded, to 0 in tiny images. Throws Error as
/// check_random_erasing().
std::vector<Rectangle> draw_erasing(Draw& draw, int64_t height, int64_t width, const RandomErasingOptions& options);

/// Draws and erases. `image` is the first of (C, H, W) numbers, already normalized; element (c, h, w) lies at
/// c * strides[0] + h * strides[1] + w * strides[2].
void random_erasing(float* image, const std::array<int64_t, 3>& sizes, const std::array<int64_t, 3>& strides,
                    const RandomErasingOptions& options, Draw& draw);

}  // namespace norma::data

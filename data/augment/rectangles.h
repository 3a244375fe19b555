#pragma once

#include "base/range.h"
#include "data/augment/geometry.h"
#include "data/augment/random.h"
#include "data/image_file.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace norma::data {

/// The numbers from `low` to `high`, both finite.
struct Interval {
  double low = 0;
  double high = 0;
};

struct RandomResizedCropOptions {
  Interval scale = {0.08, 1};           ///< the window's share of the image's area, drawn evenly
  Interval ratio = {3.0 / 4, 4.0 / 3};  ///< of the window's width to its height; its logarithm is drawn evenly
};

/// Throws Error "op: scale: …" unless 0 < low <= high <= 1, and "op: ratio: …" unless 0 < low <= high.
void check_random_resized_crop(const char* op, const RandomResizedCropOptions& options);

/// The window that torchvision's RandomResizedCrop draws in an image of these sizes. It tries an area and a ratio ten
/// times, each rounded to whole pixels. If none fits, it takes the largest window in the middle with a ratio inside
/// `ratio`. The window is at least one pixel wide and high. Throws Error as check_random_resized_crop(), and for sizes
/// below 1.
Rectangle draw_resized_crop(Draw& draw, int64_t height, int64_t width, const RandomResizedCropOptions& options = {});

inline constexpr Range<int64_t> kErasingCount{1, 100};

/// The values that replace the erased pixels.
enum class ErasingMode : uint8_t {
  constant,  ///< 0: the mean of a normalized image
  random,    ///< a normal number for each channel
  pixel,     ///< a normal number for each channel of each pixel
};

/// The names of the modes in timm: "const", "rand", "pixel".
std::vector<std::string> erasing_mode_names();
/// The mode of this name. Throws Error "op: unknown mode …".
ErasingMode erasing_mode(std::string_view op, std::string_view name);

/// timm's RandomErasing (Zhong et al., "Random erasing data augmentation", 2017).
struct RandomErasingOptions {
  double probability = 0;  ///< that an image is erased at all
  ErasingMode mode = ErasingMode::constant;
  int64_t count = 1;                  ///< rectangles in an image: from 1 up to this many, drawn evenly
  Interval area = {0.02, 1.0 / 3};    ///< all rectangles' share of the image, drawn evenly
  Interval ratio = {0.3, 1.0 / 0.3};  ///< height over width; its logarithm is drawn evenly
};

/// Throws Error "op: …" for a probability outside [0, 1], a count outside kErasingCount, or an invalid interval.
void check_random_erasing(const char* op, const RandomErasingOptions& options);

/// The rectangles to erase from an image of these sizes; none if the image is not to be erased. Each is drawn up to ten
/// times, until it is lower and narrower than the image, or left out. Sides are rounded, to 0 in tiny images. Throws
/// Error as check_random_erasing().
std::vector<Rectangle> draw_erasing(Draw& draw, int64_t height, int64_t width, const RandomErasingOptions& options);

/// Draws rectangles and erases them. `image` points to (C, H, W) numbers, already normalized; element (c, h, w) lies at
/// c * strides[0] + h * strides[1] + w * strides[2].
void random_erasing(float* image, const std::array<int64_t, 3>& sizes, const std::array<int64_t, 3>& strides,
                    const RandomErasingOptions& options, Draw& draw);

}  // namespace norma::data

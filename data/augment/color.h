#pragma once

#include "base/range.h"
#include "data/augment/random.h"
#include "data/image_file.h"

#include <array>
#include <cstdint>
#include <string_view>

namespace norma::data {

// All results have the bytes of Pillow, and so of torchvision's functions on PIL images. All functions throw Error for
// an empty image.

inline constexpr Range<double> kAdjustFactor{0, 1000};

/// Replaces each byte v by 255 - v: ImageOps.invert.
Image invert(Image image);

/// Keeps the upper `bits` bits of each byte: ImageOps.posterize. 0 makes the image black, as old versions of Pillow do.
/// Throws Error unless bits is from 0 to 8.
Image posterize(Image image, int64_t bits);

/// Inverts the bytes that are not below `threshold`: ImageOps.solarize.
Image solarize(Image image, double threshold);

/// Adds `add` to the bytes below `threshold`, at most to 255: timm's solarize_add.
Image solarize_add(Image image, int64_t add, int64_t threshold = 128);

/// Stretches each channel so that its darkest byte becomes 0 and its brightest 255: ImageOps.autocontrast.
Image autocontrast(Image image);

/// Maps each channel so that its bytes come equally often, as far as a map can: ImageOps.equalize.
Image equalize(Image image);

// A factor of 1 leaves the image as it is. These functions throw Error unless the factor is in kAdjustFactor.

/// Moves the image towards black for factors below 1: ImageEnhance.Brightness.
Image adjust_brightness(Image image, double factor);
/// Moves it towards the mean grey for factors below 1: ImageEnhance.Contrast.
Image adjust_contrast(Image image, double factor);
/// Moves it towards grey for factors below 1: ImageEnhance.Color, torchvision's adjust_saturation. A grey image stays.
Image adjust_saturation(Image image, double factor);
/// Moves it towards a blurred image for factors below 1: ImageEnhance.Sharpness. The outermost pixels stay, and so do
/// images of less than 3 rows or columns.
Image adjust_sharpness(Image image, double factor);

/// Turns the hue by `factor` of the circle, in steps of 1/256 of it, through Pillow's HSV in bytes: torchvision's
/// adjust_hue on PIL images. A factor of 0 can change a pixel, by the conversion to HSV and back. A grey image stays.
/// Throws Error unless factor is from -0.5 to 0.5.
Image adjust_hue(Image image, double factor);

/// Limits of torchvision's ColorJitter. An adjustment with 0 is left out.
struct ColorJitterOptions {
  double brightness = 0;  ///< the factor is drawn evenly from [max(0, 1 - brightness), 1 + brightness]
  double contrast = 0;    ///< likewise
  double saturation = 0;  ///< likewise
  double hue = 0;         ///< the turn is drawn evenly from [-hue, hue]; at most 0.5

  [[nodiscard]] bool any() const { return brightness > 0 || contrast > 0 || saturation > 0 || hue > 0; }
};

/// The range of brightness, contrast and saturation. At its end the factor reaches that of kAdjustFactor.
inline constexpr Range<double> kJitter{kAdjustFactor.low, kAdjustFactor.high - 1};

/// Throws Error "op: brightness: …" for numbers outside kJitter, and a hue outside 0 to 0.5.
void check_color_jitter(std::string_view op, const ColorJitterOptions& options);

/// Parses timm's texts: "0.4" (brightness, contrast and saturation), "0.4,0.3,0.2", and "0.4,0.3,0.2,0.1" with the hue;
/// "" is no jitter. Throws Error "op: …" for anything else.
ColorJitterOptions parse_color_jitter(std::string_view op, std::string_view text);

/// The adjustments drawn for one image.
struct ColorJitter {
  std::array<int, 4> order = {0, 1, 2, 3};       ///< 0 brightness, 1 contrast, 2 saturation, 3 hue
  std::array<double, 4> factors = {1, 1, 1, 0};  ///< their factors, by the same numbers
};

/// Draws the order and the factors. Throws Error as check_color_jitter().
ColorJitter draw_color_jitter(Draw& draw, const ColorJitterOptions& options);
/// Makes the four adjustments of data/augment/color.h in that order, without those that would change nothing.
Image apply(const ColorJitter& jitter, Image image);

}  // namespace norma::data

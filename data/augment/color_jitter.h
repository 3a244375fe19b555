#pragma once

#include "base/range.h"
#include "data/augment/color.h"
#include "data/augment/random.h"
#include "data/image_file.h"

#include <array>
#include <string>
#include <string_view>

namespace norma::data {

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
Image apply(const ColorJitter& jitter, const Image& image);

}  // namespace norma::data

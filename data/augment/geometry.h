#pragma once

#include "data/image_file.h"

#include <array>
#include <cstdint>

namespace norma::data {

/// How a pixel between pixels is read.
enum class Interpolation : uint8_t {
  nearest,
  bilinear,  ///< of 2 x 2 pixels
  bicubic,   ///< of 4 x 4 pixels, the cubic of Keys with a = -1
};

/// A colour; a grey image takes the first number.
using Color = std::array<uint8_t, 3>;

struct AffineOptions {
  Interpolation interpolation = Interpolation::nearest;
  Color fill = {0, 0, 0};  ///< of what lies outside the image
};

// All results have the image's size and the bytes of Pillow. All throw Error for an empty image, and for numbers that
// are not finite.

/// The pixel at column x and row y shows the place (m[0] x' + m[1] y' + m[2], m[3] x' + m[4] y' + m[5]) of the image,
/// where x' = x + 1/2 and y' = y + 1/2: Pillow's Image.transform(size, AFFINE, m, interpolation, fillcolor=fill).
/// Fractions are cut off, as there.
Image affine(const Image& image, const std::array<double, 6>& matrix, const AffineOptions& options = {});

/// Around the middle, anticlockwise: Pillow's Image.rotate(degrees, interpolation, fillcolor=fill). Multiples of 180°,
/// and of 90° for square images, take the pixels as they are.
Image rotate(const Image& image, double degrees, const AffineOptions& options = {});

/// timm's shear_x and shear_y: the matrix (1, factor, 0, 0, 1, 0) and (1, 0, 0, factor, 1, 0).
Image shear_x(const Image& image, double factor, const AffineOptions& options = {});
Image shear_y(const Image& image, double factor, const AffineOptions& options = {});

/// timm's translate_x_abs and translate_y_abs: for positive numbers the image moves to the left, or up.
Image translate_x(const Image& image, double pixels, const AffineOptions& options = {});
Image translate_y(const Image& image, double pixels, const AffineOptions& options = {});

/// Left and right change places: torchvision's hflip.
Image hflip(const Image& image);
/// Top and bottom change places: torchvision's vflip.
Image vflip(const Image& image);

/// With so many pixels more on each side, of the colour `fill`: torchvision's pad. Throws Error for a negative
/// padding, and when there are more than 2^27 pixels then.
Image pad(const Image& image, int64_t padding, const Color& fill = {0, 0, 0});

}  // namespace norma::data

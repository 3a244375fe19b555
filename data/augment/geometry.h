#pragma once

#include "data/image_file.h"

#include <array>
#include <cstdint>

namespace norma::data {

/// How a value between pixels is computed.
enum class Interpolation : uint8_t {
  nearest,
  bilinear,  ///< from 2 x 2 pixels
  bicubic,   ///< from 4 x 4 pixels, by the cubic of Keys with a = -1
};

/// A color; a grey image takes its first number.
using Color = std::array<uint8_t, 3>;

struct AffineOptions {
  Interpolation interpolation = Interpolation::nearest;
  Color fill = {0, 0, 0};  ///< color of the area outside the image
};

// All results have the image's size and the bytes of Pillow. All functions throw Error for an empty image, and for
// numbers that are not finite.

/// An affine map: Pillow's Image.transform(size, AFFINE, m, interpolation, fillcolor=fill). The pixel at column x and
/// row y shows the place (m[0] x' + m[1] y' + m[2], m[3] x' + m[4] y' + m[5]) of the image, with x' = x + 1/2 and y' =
/// y + 1/2. Interpolated values are truncated to whole numbers, as in Pillow.
Image affine(Image image, const std::array<double, 6>& matrix, const AffineOptions& options = {});

/// Rotates anticlockwise around the middle: Pillow's Image.rotate(degrees, interpolation, fillcolor=fill). Multiples of
/// 180°, and of 90° for square images, copy the pixels as they are.
Image rotate(Image image, double degrees, const AffineOptions& options = {});

/// timm's shear_x and shear_y: the matrix (1, factor, 0, 0, 1, 0) and (1, 0, 0, factor, 1, 0).
Image shear_x(Image image, double factor, const AffineOptions& options = {});
Image shear_y(Image image, double factor, const AffineOptions& options = {});

/// timm's translate_x_abs and translate_y_abs: positive numbers move the image to the left, or up.
Image translate_x(Image image, double pixels, const AffineOptions& options = {});
Image translate_y(Image image, double pixels, const AffineOptions& options = {});

/// Swaps left and right: torchvision's hflip.
Image hflip(Image image);
/// Swaps top and bottom: torchvision's vflip.
Image vflip(Image image);

}  // namespace norma::data

#pragma once

#include "base/range.h"
#include "data/image_file.h"

#include <cstdint>

namespace norma::data {

// All results have the bytes of Pillow, and so of torchvision's functions on PIL images. All functions throw Error for
// an empty image.

inline constexpr Range<double> kAdjustFactor{0, 1000};

/// Replaces each byte v by 255 - v: ImageOps.invert.
Image invert(const Image& image);

/// Keeps the upper `bits` bits of each byte: ImageOps.posterize. 0 makes the image black, as old versions of Pillow do.
/// Throws Error unless bits is from 0 to 8.
Image posterize(const Image& image, int64_t bits);

/// Inverts the bytes that are not below `threshold`: ImageOps.solarize.
Image solarize(const Image& image, double threshold);

/// Adds `add` to the bytes below `threshold`, at most to 255: timm's solarize_add.
Image solarize_add(const Image& image, int64_t add, int64_t threshold = 128);

/// Stretches each channel so that its darkest byte becomes 0 and its brightest 255: ImageOps.autocontrast.
Image autocontrast(const Image& image);

/// Maps each channel so that its bytes come equally often, as far as a map can: ImageOps.equalize.
Image equalize(const Image& image);

// A factor of 1 leaves the image as it is. These functions throw Error unless the factor is in kAdjustFactor.

/// Moves the image towards black for factors below 1: ImageEnhance.Brightness.
Image adjust_brightness(const Image& image, double factor);
/// Moves it towards the mean grey for factors below 1: ImageEnhance.Contrast.
Image adjust_contrast(const Image& image, double factor);
/// Moves it towards grey for factors below 1: ImageEnhance.Color, torchvision's adjust_saturation. A grey image stays.
Image adjust_saturation(const Image& image, double factor);
/// Moves it towards a blurred image for factors below 1: ImageEnhance.Sharpness. The outermost pixels stay, and so do
/// images of less than 3 rows or columns.
Image adjust_sharpness(const Image& image, double factor);

/// Turns the hue by `factor` of the circle, in steps of 1/256 of it, through Pillow's HSV in bytes: torchvision's
/// adjust_hue on PIL images. A factor of 0 can change a pixel, by the conversion to HSV and back. A grey image stays.
/// Throws Error unless factor is from -0.5 to 0.5.
Image adjust_hue(const Image& image, double factor);

/// The grey image of ITU-R 601-2 luminance, 0.299 R + 0.587 G + 0.114 B in units of 2^-16, rounded: Image.convert("L").
/// A grey image stays.
Image to_grey(const Image& image);

}  // namespace norma::data

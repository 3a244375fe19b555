#pragma once

#include <array>
#include <cstdint>

namespace norma::data {

/// An image whose pixels show places of another one of the same sizes, as affine() has them.
struct Interpolation2d {
  const uint8_t* from = nullptr;  ///< and one byte behind the last pixel, which may be read
  uint8_t* to = nullptr;          ///< pixels whose place lies outside stay as they are
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;  ///< 1 or 3
  std::array<double, 6> matrix = {};
};

/// From 2 x 2 pixels; those past an edge are those of the edge. In double, with fractions cut off, as Pillow.
void interpolate_bilinear(const Interpolation2d& job);
/// From 4 x 4 pixels.
void interpolate_bicubic(const Interpolation2d& job);

}  // namespace norma::data

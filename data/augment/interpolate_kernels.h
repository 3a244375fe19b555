#pragma once

#include <array>
#include <cstdint>

namespace norma::data {

/// An affine map of an image to one of the same sizes, as in affine().
struct Interpolation2d {
  const uint8_t* from = nullptr;  ///< one byte after the last pixel is read, too
  uint8_t* to = nullptr;          ///< pixels whose place lies outside stay as they are
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;  ///< 1 or 3
  std::array<double, 6> matrix = {};
};

/// Computes each value from 2 x 2 pixels; beyond an edge its pixels repeat. Computes in double and truncates the
/// result, as Pillow does.
void interpolate_bilinear(const Interpolation2d& job);
/// Computes each value from 4 x 4 pixels, in the same way.
void interpolate_bicubic(const Interpolation2d& job);

}  // namespace norma::data

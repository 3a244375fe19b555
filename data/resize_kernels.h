#pragma once

#include <cstdint>
#include <vector>

namespace norma::data {

/// The weights of one new pixel along an axis, for the old pixels from `first` on. A weight is a whole number of 2^-22.
/// The absolute weights of a pixel add up to at most 1.5, so that 32 bits hold their sum with pixels of 8 bits.
struct ResizeWindow {
  int64_t first = 0;
  std::vector<int32_t> weights;
};
inline constexpr int kResizeFractionBits = 22;

/// Bytes after a row of color pixels that resize_rows() may read, but ignores.
inline constexpr int64_t kResizeReadsBehind = 16;

/// Rows of pixels of 1 or 3 channels, one after another.
struct PixelRows {
  const uint8_t* pixels = nullptr;
  int64_t count = 0;
  int64_t bytes = 0;  ///< of one row
  int64_t channels = 0;
};

/// Resizes each row by these windows, rounded to nearest, and writes the rows one after another. One byte after the
/// last is written, too.
void resize_rows(const PixelRows& rows, const std::vector<ResizeWindow>& windows, uint8_t* to);

/// Computes new rows of the same length by these windows, which count the rows of the whole image; rows.pixels points
/// to row `begin` of it.
void resize_columns(const PixelRows& rows, int64_t begin, const std::vector<ResizeWindow>& windows, uint8_t* to);

}  // namespace norma::data

#pragma once

#include <cstdint>
#include <vector>

namespace norma::data {

/// What one new pixel is made of along an axis: the old ones from `first` on, each times its weight, a whole number of
/// 2^-22. With 8 bits of a pixel and a sum that may overshoot by a half, 32 bits hold all sums.
struct ResizeWindow {
  int64_t first = 0;
  std::vector<int32_t> weights;
};
inline constexpr int kResizeFractionBits = 22;

/// Bytes behind a row of pixels in colour that resize_rows() may read, and does not use.
inline constexpr int64_t kResizeReadsBehind = 16;

/// Some rows of pixels of 1 or 3 channels, one behind another.
struct PixelRows {
  const uint8_t* pixels = nullptr;
  int64_t count = 0;
  int64_t bytes = 0;  ///< of a row
  int64_t channels = 0;
};

/// Each row with these new pixels, rounded to nearest, one row behind another; one byte behind the last is written to,
/// too.
void resize_rows(const PixelRows& rows, const std::vector<ResizeWindow>& windows, uint8_t* to);

/// New rows of the same length by these windows; rows.pixels is the old row of number `begin` in them.
void resize_columns(const PixelRows& rows, int64_t begin, const std::vector<ResizeWindow>& windows, uint8_t* to);

}  // namespace norma::data

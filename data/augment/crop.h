#pragma once

#include "data/augment/geometry.h"
#include "data/augment/random.h"
#include "data/image_file.h"

#include <cstdint>

namespace norma::data {

/// Rows [top, top + height) and columns [left, left + width) of an image.
struct Rectangle {
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;
};

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

struct RandomCropOptions {
  int64_t padding = 0;  ///< pixels added on each side before the window is cut out
  Color fill = {0, 0, 0};
};

/// Cuts out height x width pixels at a place drawn evenly: torchvision's RandomCrop. Throws Error when the padded image
/// is smaller.
Image random_crop(const Image& image, int64_t height, int64_t width, Draw& draw, const RandomCropOptions& options = {});

}  // namespace norma::data

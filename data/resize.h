#pragma once

#include "data/image_file.h"

#include <cstdint>
#include <vector>

namespace norma::data {

/// The weights that make a new pixel of the old ones around its place. When the image shrinks, the filter widens in
/// proportion, so that no detail finer than a new pixel is left (antialiasing). Pixels outside the image do not count.
enum class ResizeFilter : uint8_t {
  bilinear,  ///< a triangle, 1 pixel to each side
  bicubic,   ///< the cubic of Keys (1981) with a = -0.5, 2 pixels to each side
};

/// The pixels that make a new one: the first, and the weights, whose sum is 1, of it and its neighbors.
struct FilterWindow {
  int64_t first = 0;
  std::vector<double> weights;
};

/// The windows of the new pixels [begin, end), when a row of `from` pixels becomes one of `to`.
std::vector<FilterWindow> filter_windows(int64_t from, int64_t to, int64_t begin, int64_t end, ResizeFilter filter);

/// Resizes an image: first along the rows, then along the columns, each time in bytes rounded to nearest. The bytes are
/// those of Pillow's Image.resize(), and so of torchvision's Resize on PIL images. One exception: Pillow 13 takes the
/// columns of some images first, most of them more than twice as high as wide, and bytes differ by 1 there. Throws
/// Error for a size below 1, more than 2^27 pixels, or an empty image.
Image resize(const Image& image, int64_t height, int64_t width, ResizeFilter filter = ResizeFilter::bilinear);

/// Whether an image is mirrored: left and right, top and bottom.
struct Flips {
  bool across = false;
  bool down = false;
};

/// resize() of a window of an image, as if it were an image of its own, then mirrored. The memory of `result` is used
/// again. Throws Error also for a window that is not inside.
void resize_window(const Image& image, const Rectangle& window, int64_t height, int64_t width, ResizeFilter filter,
                   const Flips& flips, Image& result);

/// The `height` x `width` pixels from row `top` and column `left` on. Throws Error when they are not inside.
Image crop(const Image& image, int64_t top, int64_t left, int64_t height, int64_t width);

/// torchvision's Resize(size) and CenterCrop(crop_size): the shorter side becomes `size` pixels long, the other keeps
/// the proportion (rounded down), and the middle crop_size x crop_size pixels are cut out. Throws Error unless 1 <=
/// crop_size <= size <= 2^27, and for an empty image.
Image resize_and_crop(const Image& image, int64_t size, int64_t crop_size,
                      ResizeFilter filter = ResizeFilter::bilinear);

}  // namespace norma::data

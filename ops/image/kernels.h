#pragma once

#include "core/by_device.h"

#include <cstdint>

namespace norma::kernels {

/// Images of bytes (n, c, h, w), dense as NCHW or as NHWC.
struct ImageShape {
  int64_t n = 0, c = 0, h = 0, w = 0;
  bool channels_last = false;

  [[nodiscard]] int64_t numel() const { return n * c * h * w; }
};

/// ops/image/normalize.h's mix in the numbers of the kernels.
struct ImageMix {
  float own = 1;
  float other = 0;
  bool any = false;
  bool replaces = false;  ///< the box comes from the other image; else the whole images are mixed
  int64_t top = 0, left = 0, height = 0, width = 0;
};

struct ImageKernels {
  /// y = table[channel][x], mixed; y lies as x does. `table` has 256 numbers for each channel.
  void (*normalize)(const ImageShape& shape, const uint8_t* x, const float* table, const ImageMix& mix, float* y);
};

extern const ImageKernels image_cpu, image_cuda, image_emulated;
extern const ByDevice<ImageKernels> image_kernels;

}  // namespace norma::kernels

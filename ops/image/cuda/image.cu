#include "core/cuda/kernel.h"
#include "ops/image/kernels.h"

namespace norma::kernels::NORMA_BACKEND {

/// y = table[channel][x], mixed with the image at the other end of the batch.
NORMA_KERNEL void normalize_elements(ImageShape shape, const uint8_t* x, const float* table, ImageMix mix, float* y) {
  const int64_t plane = shape.h * shape.w;
  const int64_t size = shape.c * plane;
  for (int64_t i = global_thread(); i < shape.n * size; i += global_threads()) {
    const int64_t image = quotient(i, size);
    const int64_t at = i - image * size;
    const int64_t outer = quotient(at, shape.channels_last ? shape.c : plane);
    const int64_t inner = at - outer * (shape.channels_last ? shape.c : plane);
    const float* const numbers = table + (shape.channels_last ? inner : outer) * 256;
    float result = numbers[x[i]];
    const int64_t other = shape.n - 1 - image;
    if (mix.any && other != image) {
      const int64_t pixel = shape.channels_last ? outer : inner;
      const int64_t row = quotient(pixel, shape.w);
      const int64_t column = pixel - row * shape.w;
      const bool in_box =
          row >= mix.top && row < mix.top + mix.height && column >= mix.left && column < mix.left + mix.width;
      if (!mix.replaces || in_box) {
        const float value = numbers[x[other * size + at]];
        result = mix.replaces ? value : result * mix.own + value * mix.other;
      }
    }
    y[i] = result;
  }
}

void normalize(const ImageShape& shape, const uint8_t* x, const float* table, const ImageMix& mix, float* y) {
  constexpr int kThreads = 256;
  const int64_t count = shape.numel();
  if (count > 0) {
    launch_over(count, kThreads, normalize_elements, shape, x, table, mix, y);
  }
}

}  // namespace norma::kernels::NORMA_BACKEND

namespace norma::kernels {

using namespace NORMA_BACKEND;

constinit const ImageKernels NORMA_TABLE(image){.normalize = normalize};

}  // namespace norma::kernels

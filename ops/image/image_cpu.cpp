#include "core/parallel.h"
#include "ops/image/kernels.h"

namespace norma::kernels {

namespace {

void normalize(const ImageShape& shape, const uint8_t* x, const float* table, const ImageMix& mix, float* y) {
  const auto& [n, c, h, w, channels_last] = shape;
  const int64_t size = c * h * w;
  const int64_t channel_step = channels_last ? 1 : h * w;
  const int64_t pixel_step = channels_last ? c : 1;
  parallel_for(0, n * c, 1, [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      const int64_t image = plane / c;
      const float* const numbers = table + plane % c * 256;
      const int64_t offset = plane % c * channel_step;
      const uint8_t* const own = x + image * size + offset;
      const uint8_t* const other = x + (n - 1 - image) * size + offset;
      float* const to = y + image * size + offset;
      for (int64_t i = 0; i < h * w; ++i) {
        to[i * pixel_step] = numbers[own[i * pixel_step]];
      }
      if (!mix.any || own == other) {
        continue;
      }
      const int64_t top = mix.replaces ? mix.top : 0;
      const int64_t left = mix.replaces ? mix.left : 0;
      const int64_t bottom = mix.replaces ? top + mix.height : h;
      const int64_t right = mix.replaces ? left + mix.width : w;
      for (int64_t row = top; row < bottom; ++row) {
        for (int64_t i = row * w + left; i < row * w + right; ++i) {
          const float value = numbers[other[i * pixel_step]];
          float& mixed = to[i * pixel_step];
          mixed = mix.replaces ? value : mixed * mix.own + value * mix.other;
        }
      }
    }
  });
}

}  // namespace

constinit const ImageKernels image_cpu{.normalize = normalize};

}  // namespace norma::kernels

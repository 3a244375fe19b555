// The sum of squares of each channel over all images, as a kernel of CUDA on the device cuda-emulated.
#include <norma/core/cuda/kernel.h>

#include <cstdio>
#include <exception>
#include <vector>

namespace norma::kernels::NORMA_BACKEND {

/// The sum over all threads of the block, in each of them. `shared` has a number for each warp.
NORMA_DEVICE float sum_of_block(float value, float* shared) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    value += shuffle_xor(value, mask);
  }
  if (lane() == 0) {
    shared[thread() / kWarp] = value;
  }
  sync_threads();
  float sum = 0;
  for (int warp = 0; warp < threads() / kWarp; ++warp) {
    sum += shared[warp];
  }
  sync_threads();
  return sum;
}

/// x: (images, channels, pixels), sums: (channels), which begin with 0.
NORMA_KERNEL void add_squares(const float* x, int images, int channels, int pixels, float* sums) {
  for (int64_t n = block(); n < images; n += blocks()) {
    for (int64_t c = 0; c < channels; ++c) {
      const float* plane = x + (n * channels + c) * pixels;
      float squares = 0;
      for (int i = thread(); i < pixels; i += threads()) {
        squares += plane[i] * plane[i];
      }
      const float sum = sum_of_block(squares, shared_memory<float>());
      if (thread() == 0) {
        sums[c] += sum;
      }
    }
  }
}

}  // namespace norma::kernels::NORMA_BACKEND

int main() {
  using namespace norma::kernels;
  using namespace norma::kernels::NORMA_BACKEND;
  constexpr int kImages = 4;
  constexpr int kChannels = 4;
  constexpr int kPixels = 100;
  constexpr int kThreads = 64;
  const std::vector<float> x(kImages * kChannels * kPixels, 0.5F);
  std::vector<float> sums(kChannels);
  try {
    launch(/* blocks= */ 4, kThreads, kThreads / kWarp * sizeof(float), current_stream(), add_squares, x.data(),
           kImages, kChannels, kPixels, sums.data());
  } catch (const std::exception& race) {
    std::printf("%s\n", race.what());
    return 1;
  }
  for (const float sum : sums) {
    std::printf("expected 100, got %g\n", static_cast<double>(sum));
  }
}

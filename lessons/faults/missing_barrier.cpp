// Layer norm of rows, without weights, as a kernel of CUDA on the device cuda-emulated: a block for each row.
#include <norma/core/cuda/kernel.h>

#include <cmath>
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
  return sum;
}

/// x, y: (blocks, count).
NORMA_KERNEL void normalize_rows(const float* x, int count, float* y) {
  auto* shared = shared_memory<float>();
  const float* row = x + block() * count;
  float sum = 0;
  for (int i = thread(); i < count; i += threads()) {
    sum += row[i];
  }
  const float mean = sum_of_block(sum, shared) / static_cast<float>(count);
  float squares = 0;
  for (int i = thread(); i < count; i += threads()) {
    squares += (row[i] - mean) * (row[i] - mean);
  }
  const float variance = sum_of_block(squares, shared) / static_cast<float>(count);
  const float r = 1 / std::sqrt(variance + 1e-5F);
  for (int i = thread(); i < count; i += threads()) {
    y[block() * count + i] = (row[i] - mean) * r;
  }
}

}  // namespace norma::kernels::NORMA_BACKEND

int main() {
  using namespace norma::kernels;
  using namespace norma::kernels::NORMA_BACKEND;
  constexpr int kRows = 2;
  constexpr int kCount = 200;
  constexpr int kThreads = 96;
  std::vector<float> x(kRows * kCount);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i % 7);
  }
  std::vector<float> y(x.size());
  try {
    launch(kRows, kThreads, kThreads / kWarp * sizeof(float), current_stream(), normalize_rows, x.data(), kCount,
           y.data());
  } catch (const std::exception& race) {
    std::printf("%s\n", race.what());
    return 1;
  }
  double squares = 0;
  for (const float one : y) {
    squares += static_cast<double>(one) * static_cast<double>(one);
  }
  std::printf("mean square: expected 1.0000, got %.4f\n", squares / static_cast<double>(y.size()));
}

// Lesson 9: fill the three gaps, then: ./run lesson 9 --check

#include "exercise.h"

#include <norma/core/cuda/kernel.h>

#include <cmath>

using namespace norma::kernels::emulated;  // NOLINT: a lesson reads better without prefixes
using norma::kernels::kWarp;

namespace {

/// What each thread does for gap 1.
NORMA_KERNEL void scale(int64_t count, float by, const float* x, float* y) {
  // GAP 1: y[i] = x[i] * by for all i below count, shared by all threads of all blocks. Which i are this thread's?
}

/// The sum of the values of a warp's 32 lanes; each lane gets it.
NORMA_DEVICE float sum_of_warp(float value) {
  // GAP 2: as many steps as it takes until each lane has what all lanes began with.
  return value;
}

NORMA_KERNEL void sum_of_rows(const float* x, float* to) {
  const float sum = sum_of_warp(x[block() * kWarp + thread()]);
  if (thread() == 0) {
    to[block()] = sum;
  }
}

/// The sum of the values of a block's threads; each thread gets it. May be called again and again.
NORMA_DEVICE float sum_of_block(float value) {
  // GAP 3: sum_of_warp() first, then shared memory. This function is called again and again: where must barriers be?
  return value;
}

/// Writes down what each thread of a block gets as the sum of the numbers 1, 2, 3, …, one from each thread.
NORMA_KERNEL void sums_of_threads(float* to) {
  const float sum = sum_of_block(static_cast<float>(thread() + 1));
  to[thread()] = sum;
}

NORMA_KERNEL void norm_rows(int64_t n, const float* x, float* y) {
  const float* const row = x + block() * n;
  float part = 0;  // each thread adds up every threads()-th number
  for (int64_t i = thread(); i < n; i += threads()) {
    part += row[i];
  }
  const float mean = sum_of_block(part) / static_cast<float>(n);
  part = 0;
  for (int64_t i = thread(); i < n; i += threads()) {
    part += (row[i] - mean) * (row[i] - mean);
  }
  const float rstd = 1 / std::sqrt(sum_of_block(part) / static_cast<float>(n) + 1e-5F);
  for (int64_t i = thread(); i < n; i += threads()) {
    y[block() * n + i] = (row[i] - mean) * rstd;
  }
}

}  // namespace

void run_scale(int64_t blocks, int threads, int64_t count, float by, const float* x, float* y) {
  launch(blocks, threads, /* shared_bytes= */ 0, current_stream(), scale, count, by, x, y);
}
void run_sum_of_rows(int64_t rows, const float* x, float* to) {
  launch(rows, kWarp, /* shared_bytes= */ 0, current_stream(), sum_of_rows, x, to);
}
void run_sums_of_threads(int threads, float* to) {
  launch(1, threads, static_cast<size_t>(threads / kWarp) * sizeof(float), current_stream(), sums_of_threads, to);
}
void run_norm_rows(int64_t rows, int threads, int64_t n, const float* x, float* y) {
  const size_t one_number_a_warp = static_cast<size_t>(threads / kWarp) * sizeof(float);
  launch(rows, threads, one_number_a_warp, current_stream(), norm_rows, n, x, y);
}

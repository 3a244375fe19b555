#pragma once

// The kernels of the page. A kernel is what one thread of a GPU does.

#include <norma/core/cuda/kernel.h>

namespace norma::kernels::NORMA_BACKEND {

/// Each thread writes down who it is: 100 · block + thread. to: one number for each thread of all blocks.
NORMA_KERNEL void who_am_i(int* to) {
  const auto index = static_cast<int>(block()) * threads() + thread();
  to[index] = 100 * static_cast<int>(block()) + thread();
}

/// Adds up the values of the 32 lanes of a warp: each lane gets the sum. After the first step a lane has the sum of 2
/// lanes, then of 4, 8, 16, 32. `steps`: where the first block writes what each lane has after each step.
NORMA_DEVICE float sum_of_warp(float value, float* steps) {
  for (int mask = 1; mask < kWarp; mask *= 2) {
    value += shuffle_xor(value, mask);
    *steps = value;
    steps += kWarp;
  }
  return value;
}
NORMA_KERNEL void butterfly(const float* x, float* steps) {
  sum_of_warp(x[thread()], steps + thread());
}

/// The sum of one number of each thread of a block, by shared memory. Without a barrier, some warps read before others
/// have written.
NORMA_DEVICE float sum_of_block(float value, bool with_barrier) {
  const int me = thread();
  float* const of_warps = shared_memory<float>();
  for (int mask = 1; mask < kWarp; mask *= 2) {
    value += shuffle_xor(value, mask);
  }
  if (me % kWarp == 0) {
    of_warps[me / kWarp] = value;
  }
  if (with_barrier) {
    sync_threads();
  }
  float sum = 0;
  for (int warp = 0; warp < threads() / kWarp; ++warp) {
    sum += of_warps[warp];
  }
  return sum;
}
/// The mean of each row: block number i takes row i, and each thread one number of it.
NORMA_KERNEL void mean_of_rows(const float* x, float* mean, bool with_barrier) {
  const float sum = sum_of_block(x[block() * threads() + thread()], with_barrier);
  if (thread() == 0) {
    mean[block()] = sum / static_cast<float>(threads());
  }
}

/// Mean and variance one after the other. The second sum writes into shared memory that slow warps still read for the
/// first one, unless there is a barrier between.
NORMA_KERNEL void variance_of_rows(const float* x, float* var, bool with_barrier) {
  const float value = x[block() * threads() + thread()];
  const float mean = sum_of_block(value, true) / static_cast<float>(threads());
  if (with_barrier) {
    sync_threads();
  }
  const float sum = sum_of_block((value - mean) * (value - mean), true);
  if (thread() == 0) {
    var[block()] = sum / static_cast<float>(threads());
  }
}

/// A barrier that only half of the threads reach.
NORMA_KERNEL void half_a_barrier(float* x) {
  if (thread() < threads() / 2) {
    x[thread()] = 1;
    sync_threads();
  }
}

}  // namespace norma::kernels::NORMA_BACKEND

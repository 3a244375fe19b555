#pragma once

#include "core/cuda/number.h"
#include "core/cuda/teams.h"

// The sums that a thread adds up of a set, before its team does.

namespace norma::kernels::NORMA_BACKEND {

/// The number of terms that a thread adds up in T before it moves them to double.
inline constexpr int kChain = 32;

/// Two sums: in T over some elements, then in double.
template <class T>
struct ChainedSums {
  T first = 0;
  T second = 0;
  double total_first = 0;
  double total_second = 0;
  int length = 0;

  /// Adds `a` to one sum and left · right to the other.
  NORMA_DEVICE void add(T a, T left, T right) {
    first += a;
    second = fused_multiply_add(left, right, second);
  }
  /// To be called after some terms, not for each: that would take as long as adding it.
  NORMA_DEVICE void have_added(int terms) {
    length += terms;
    if (length >= kChain) {
      move();
    }
  }
  NORMA_DEVICE void move() {
    total_first += first;
    total_second += second;
    first = 0;
    second = 0;
    length = 0;
  }
};

/// As ChainedSums, in double from the start, where speed does not matter.
template <class T>
struct WideSums {
  double total_first = 0;
  double total_second = 0;

  NORMA_DEVICE void add(T a, T left, T right) {
    total_first += static_cast<double>(a);
    total_second = fused_multiply_add(static_cast<double>(left), static_cast<double>(right), total_second);
  }
};

/// Weights and biases whose parts a block of add_partials() adds up: as many as a sector of memory holds. Each has a
/// warp's number of threads.
inline constexpr int kPartialsOfBlock = 8;
inline constexpr int kPartialThreads = kPartialsOfBlock * kWarp;

/// Adds the parts of the blocks up to dweight and dbias, in a fixed order; either may be null. Each part is a row of
/// `count` numbers for the weights and one for the biases.
template <class T>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kPartialThreads)
    add_partials(int64_t count, int64_t parts, const T* partials, T* dweight, T* dbias) {
  double* shared = shared_memory<double>();
  // Neighbouring threads read neighbouring numbers of a part, and the threads of a number every 32nd part.
  const int64_t first = block() * kPartialsOfBlock;
  const int64_t read = first + thread() % kPartialsOfBlock;
  double sum = 0;
  for (int64_t part = thread() / kPartialsOfBlock; part < parts && read < 2 * count; part += kWarp) {
    sum += static_cast<double>(partials[2 * part * count + read]);
  }
  shared[thread()] = sum;
  sync_threads();
  // A warp for each number.
  const int warp = thread() / kWarp;
  const double total = LaneTeam().sum(shared[lane() * kPartialsOfBlock + warp]);
  const int64_t write = first + warp;
  if (lane() != 0 || write >= 2 * count) {
    return;
  }
  T* to = write < count ? dweight : dbias;
  if (to != nullptr) {
    to[write < count ? write : write - count] = static_cast<T>(total);
  }
}

/// Launches add_partials().
template <class T>
void launch_add_partials(int64_t count, int64_t parts, const T* partials, T* dweight, T* dbias) {
  launch(ceil_div(2 * count, kPartialsOfBlock), kPartialThreads, kPartialThreads * sizeof(double), current_stream(),
         add_partials<T>, count, parts, partials, dweight, dbias);
}

}  // namespace norma::kernels::NORMA_BACKEND

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
    if (++length == kChain) {
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

/// Adds the parts of the blocks up to dweight and dbias, in their order; either may be null.
template <class T>
NORMA_KERNEL void add_partials(int64_t count, int64_t parts, const T* partials, T* dweight, T* dbias) {
  for (int64_t i = global_thread(); i < 2 * count; i += global_threads()) {
    T* to = i < count ? dweight : dbias;
    if (to == nullptr) {
      continue;
    }
    double sum = 0;
    for (int64_t part = 0; part < parts; ++part) {
      sum += static_cast<double>(partials[2 * part * count + i]);
    }
    to[i < count ? i : i - count] = static_cast<T>(sum);
  }
}

}  // namespace norma::kernels::NORMA_BACKEND

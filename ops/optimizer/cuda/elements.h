#pragma once

#include "core/cuda/number.h"

namespace norma::kernels::NORMA_BACKEND {

inline constexpr int kElementThreads = 256;

/// Calls f(i, width) for the elements i, i + 1, … of each vector of this thread, and one by one for elements that fill
/// no vector. `width` is a constant.
template <int width, class F>
NORMA_DEVICE void for_each_vector(int64_t count, F&& f) {
  const int64_t vectors = count / width;
  for (int64_t i = global_thread(); i < vectors; i += global_threads()) {
    f(i * width, std::integral_constant<int, width>{});
  }
  if constexpr (width > 1) {
    for (int64_t i = vectors * width + global_thread(); i < count; i += global_threads()) {
      f(i, std::integral_constant<int, 1>{});
    }
  }
}

/// Calls f(width, blocks, threads) for a launch over `count` elements; not at all for 0.
template <class S, class F>
void with_width(int64_t count, bool aligned, F&& f) {
  const auto call = [&](auto width) {
    const int64_t work = ceil_div(count, int64_t{width});
    f(width, blocks_for(work, kElementThreads), threads_for(work, kElementThreads));
  };
  if (count == 0) {
    return;
  }
  if (aligned) {
    call(std::integral_constant<int, kVectorOf<S>>{});
  } else {
    call(std::integral_constant<int, 1>{});
  }
}

}  // namespace norma::kernels::NORMA_BACKEND

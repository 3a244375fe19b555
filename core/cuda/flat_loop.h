#pragma once

#include "core/cuda/number.h"
#include "core/strided_loop.h"

namespace norma::kernels::NORMA_BACKEND {

/// A StridedLoop as kernels take it.
template <int N>
struct FlatLoop {
  explicit FlatLoop(const StridedLoop<N>& loop) : axes(static_cast<int>(loop.sizes.size())), count(loop.numel()) {
    for (int axis = 0; axis < axes; ++axis) {
      sizes[axis] = loop.sizes[axis];
      for (int n = 0; n < N; ++n) {
        strides[n][axis] = loop.strides[static_cast<size_t>(n)][axis];
      }
    }
  }

  /// The offset of element i in each operand.
  NORMA_DEVICE void offsets(int64_t i, int64_t (&result)[N]) const {
    for (int n = 0; n < N; ++n) {
      result[n] = 0;
    }
    for (int axis = axes - 1; axis > 0; --axis) {
      const int64_t rest = quotient(i, sizes[axis]);
      const int64_t index = i - rest * sizes[axis];
      for (int n = 0; n < N; ++n) {
        result[n] += index * strides[n][axis];
      }
      i = rest;
    }
    for (int n = 0; n < N; ++n) {
      result[n] += i * strides[n][0];
    }
  }

  int axes;
  int64_t count;
  int64_t sizes[kMaxRank] = {};
  int64_t strides[N][kMaxRank] = {};
};

}  // namespace norma::kernels::NORMA_BACKEND

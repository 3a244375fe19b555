#include "core/parallel.h"
#include "ops/half/convert.h"

#include <algorithm>

namespace norma::kernels {

namespace {

template <class F>
void dispatch_half(DType dtype, F&& f) {
  dtype == DType::bfloat16 ? f(bfloat16{}) : f(float16{});
}

/// Calls f(row, first column, last column) for all elements.
template <class F>
void for_each_piece(int64_t rows, int64_t columns, F&& f) {
  parallel_for(0, rows * columns, kPointwiseGrain, [&](int64_t begin, int64_t end) {
    for (int64_t done = begin; done < end;) {
      const int64_t row = done / columns;
      const int64_t first = done % columns;
      const int64_t last = std::min(columns, first + end - done);
      f(row, first, last);
      done += last - first;
    }
  });
}

}  // namespace

void widen(DType dtype, const void* x, int64_t rows, int64_t row_stride, int64_t columns, float* y) {
  dispatch_half(dtype, [&]<class T>(T) {
    for_each_piece(rows, columns, [&](int64_t row, int64_t first, int64_t last) {
      const T* from = static_cast<const T*>(x) + row * row_stride;
      float* to = y + row * columns;
#pragma omp simd
      for (int64_t i = first; i < last; ++i) {
        to[i] = static_cast<float>(from[i]);
      }
    });
  });
}

void round_to(DType dtype, const float* x, int64_t rows, int64_t row_stride, int64_t columns, void* y) {
  dispatch_half(dtype, [&]<class T>(T) {
    for_each_piece(rows, columns, [&](int64_t row, int64_t first, int64_t last) {
      const float* from = x + row * columns;
      T* to = static_cast<T*>(y) + row * row_stride;
#pragma omp simd
      for (int64_t i = first; i < last; ++i) {
        assign(to[i], from[i]);
      }
    });
  });
}

}  // namespace norma::kernels

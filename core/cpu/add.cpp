#include "core/cpu/tensor_kernels.h"

#include <cmath>

namespace norma::kernels {

void cpu::add(const StridedLoop<3>& loop, DType dtype, void* out, const void* a, const void* b) {
  dispatch_any_floating("accumulate", dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    T* to = static_cast<T*>(out);
    const T* first = static_cast<const T*>(a);
    const T* second = static_cast<const T*>(b);
    for_each_run(loop, [&](const auto& offsets, int64_t count, const auto& strides) {
      T* o = to + offsets[0];
      const T* x = first + offsets[1];
      const T* y = second + offsets[2];
      if (strides[0] == 1 && strides[1] == 1 && strides[2] == 1) {
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) {
          assign(o[i], static_cast<C>(x[i]) + static_cast<C>(y[i]));
        }
      } else {
        for (int64_t i = 0; i < count; ++i) {
          assign(o[i * strides[0]], static_cast<C>(x[i * strides[1]]) + static_cast<C>(y[i * strides[2]]));
        }
      }
    });
  });
}

int64_t cpu::find_not_finite(const Sizes& sizes, const Strides& strides, DType dtype, const void* x) {
  return dispatch_any_floating("find_not_finite", dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* elements = static_cast<const T*>(x);
    const int64_t count = sizes.numel();
    Sizes index = Sizes::filled(sizes.size(), 0);
    int64_t offset = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (!std::isfinite(static_cast<compute_t<T>>(elements[offset]))) {
        return i;
      }
      for (int64_t axis = sizes.size() - 1; axis >= 0; --axis) {
        offset += strides[axis];
        if (++index[axis] < sizes[axis]) {
          break;
        }
        offset -= sizes[axis] * strides[axis];
        index[axis] = 0;
      }
    }
    return int64_t{-1};
  });
}

}  // namespace norma::kernels

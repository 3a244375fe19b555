#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/add.cpp"
#include "core/simd/foreach_target.h"

#include "core/cpu/tensor_kernels.h"
#include "core/simd/call.h"
#include "core/simd/memory.h"

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

using namespace simd::HWY_NAMESPACE;

void add(const StridedLoop<3>& loop, DType dtype, void* out, const void* a, const void* b) {
  dispatch_any_floating("accumulate", dtype, [&]<class S>(S) {
    using T = compute_t<S>;
    S* to = static_cast<S*>(out);
    const S* first = static_cast<const S*>(a);
    const S* second = static_cast<const S*>(b);
    for_each_run(loop, [&](const auto& offsets, int64_t count, const auto& strides) {
      S* o = to + offsets[0];
      const S* x = first + offsets[1];
      const S* y = second + offsets[2];
      if (strides[0] == 1 && strides[1] == 1 && strides[2] == 1) {
        for_each_lanes<T>(
            count, [&](int64_t i, auto part) HWY_ATTR { store(o + i, load(x + i, part) + load(y + i, part), part); });
        return;
      }
      for (int64_t i = 0; i < count; ++i) {  // one operation, rounded as in a vector
        assign(o[i * strides[0]], static_cast<T>(x[i * strides[1]]) + static_cast<T>(y[i * strides[2]]));
      }
    });
  });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

void add(const StridedLoop<3>& loop, DType dtype, void* out, const void* a, const void* b) {
  NORMA_SIMD_CALL(add)(loop, dtype, out, a, b);
}

int64_t find_not_finite(const Sizes& sizes, const Strides& strides, DType dtype, const void* x) {
  return dispatch_any_floating("find_not_finite", dtype, [&]<class T>(T) {
    const T* elements = static_cast<const T*>(x);
    const int64_t count = sizes.numel();
    const std::array<Strides, 1> of_x{strides};
    Odometer<1> place(sizes, of_x, 0);
    for (int64_t i = 0; i < count; ++i, place.next()) {
      if (!std::isfinite(static_cast<compute_t<T>>(elements[place.offsets()[0]]))) {
        return i;
      }
    }
    return int64_t{-1};
  });
}

}  // namespace norma::kernels::cpu
#endif

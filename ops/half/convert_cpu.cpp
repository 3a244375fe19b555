#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/half/convert_cpu.cpp"
#include "core/simd/foreach_target.h"

#include "core/parallel.h"
#include "core/simd/call.h"
#include "core/simd/memory.h"
#include "ops/half/convert.h"

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::HWY_NAMESPACE {

namespace {

using namespace simd::HWY_NAMESPACE;

template <class F>
void dispatch_half(DType dtype, F&& f) {
  dtype == DType::bfloat16 ? f(bfloat16{}) : f(float16{});
}

/// to[r * to_stride + c] = from[r * from_stride + c]
template <class From, class To>
void convert(int64_t rows, int64_t columns, const From* from, int64_t from_stride, To* to, int64_t to_stride) {
  parallel_for(0, rows * columns, kPointwiseGrain, [&](int64_t begin, int64_t end) {
    for (int64_t done = begin; done < end;) {
      const int64_t row = done / columns;
      const int64_t first = done % columns;
      const int64_t count = std::min(columns - first, end - done);
      const From* source = from + row * from_stride + first;
      To* target = to + row * to_stride + first;
      for_each_lanes<float>(count,
                            [&](int64_t i, auto part) HWY_ATTR { store(target + i, load(source + i, part), part); });
      done += count;
    }
  });
}

}  // namespace

void widen(DType dtype, const void* x, int64_t rows, int64_t row_stride, int64_t columns, float* y) {
  dispatch_half(dtype, [&]<class S>(S) { convert(rows, columns, static_cast<const S*>(x), row_stride, y, columns); });
}

void round_to(DType dtype, const float* x, int64_t rows, int64_t row_stride, int64_t columns, void* y) {
  dispatch_half(dtype, [&]<class S>(S) { convert(rows, columns, x, columns, static_cast<S*>(y), row_stride); });
}

}  // namespace norma::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels {

void widen(DType dtype, const void* x, int64_t rows, int64_t row_stride, int64_t columns, float* y) {
  NORMA_SIMD_CALL(widen)(dtype, x, rows, row_stride, columns, y);
}

void round_to(DType dtype, const float* x, int64_t rows, int64_t row_stride, int64_t columns, void* y) {
  NORMA_SIMD_CALL(round_to)(dtype, x, rows, row_stride, columns, y);
}

}  // namespace norma::kernels
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "core/cpu/convert.cpp"
#include "core/simd/foreach_target.h"

#include "core/cpu/tensor_kernels.h"
#include "core/simd/call.h"
#include "core/simd/memory.h"

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {
namespace {

using namespace simd::HWY_NAMESPACE;

template <class To, class From>
void convert_number(To& to, From value) {
  if constexpr (std::is_same_v<To, bool>) {
    to = static_cast<compute_t<From>>(value) != compute_t<From>(0);
  } else {
    assign(to, static_cast<compute_t<To>>(static_cast<compute_t<From>>(value)));
  }
}

/// Converts a run of elements: strides in elements, any dtypes.
using ConvertRun = void (*)(void* dst, int64_t dst_stride, const void* src, int64_t src_stride, int64_t count);

template <class To, class From>
void convert_run(void* dst, int64_t dst_stride, const void* src, int64_t src_stride, int64_t count) {
  auto* to = static_cast<To*>(dst);
  const auto* from = static_cast<const From*>(src);
  if (dst_stride == 1 && src_stride == 1) {
    if constexpr (std::is_same_v<compute_t<To>, float> && std::is_same_v<compute_t<From>, float>) {
      for_each_lanes<float>(count, [&](int64_t i, auto part) HWY_ATTR { store(to + i, load(from + i, part), part); });
    } else {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        convert_number(to[i], from[i]);
      }
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    convert_number(to[i * dst_stride], from[i * src_stride]);
  }
}

ConvertRun find_convert_run(DType to, DType from) {
  return dispatch_all(to, [&](auto t) {
    return dispatch_all(from, [](auto f) -> ConvertRun { return convert_run<decltype(t), decltype(f)>; });
  });
}

}  // namespace

void convert(const StridedLoop<2>& loop, DType dst_dtype, void* dst, DType src_dtype, const void* src) {
  const ConvertRun run = find_convert_run(dst_dtype, src_dtype);
  auto* to = static_cast<std::byte*>(dst);
  const auto* from = static_cast<const std::byte*>(src);
  const auto to_size = static_cast<int64_t>(size_of(dst_dtype));
  const auto from_size = static_cast<int64_t>(size_of(src_dtype));
  for_each_run(loop, [&](const auto& offsets, int64_t count, const auto& strides) {
    run(to + offsets[0] * to_size, strides[0], from + offsets[1] * from_size, strides[1], count);
  });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

void convert(const StridedLoop<2>& loop, DType dst_dtype, void* dst, DType src_dtype, const void* src) {
  NORMA_SIMD_CALL(convert)(loop, dst_dtype, dst, src_dtype, src);
}

}  // namespace norma::kernels::cpu
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pointwise/cpu/binary.cpp"
#include "core/simd/foreach_target.h"

#include "ops/pointwise/cpu/loops.h"
#include "ops/pointwise/cpu/pointwise_kernels.h"
#include "ops/pointwise/functions.h"
#include "ops/pointwise/integer_functions.h"

#include <cmath>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

namespace {

template <class S>
void binary_floating(Binary f, const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b) {
  using T = compute_t<S>;
  with_binary_function<T>(f, [&]<class F>(F function) {
    if constexpr (std::is_same_v<F, BinaryFunction<Binary::pow, T>>) {
      map_numbers<S, S>(sizes, y, a, b, [](T u, T v) { return std::pow(u, v); });
    } else {
      map<S>(sizes, y, a, b, function);
    }
  });
}

}  // namespace

void binary(Binary f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b) {
  dispatch_numeric("binary", dtype, [&](auto tag) {
    using S = decltype(tag);
    if constexpr (std::is_integral_v<S>) {
      with_integer_binary_function<S>(f, [&](auto function) { map_numbers<S, S>(sizes, y, a, b, function); });
    } else {
      binary_floating<S>(f, sizes, y, a, b);
    }
  });
}

void compare(Comparison f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b) {
  dispatch_all(dtype, [&](auto tag) {
    using S = decltype(tag);
    using T = compute_t<S>;
    switch (f) {
      case Comparison::equal: return map_numbers<bool, S>(sizes, y, a, b, [](T u, T v) { return u == v; });
      case Comparison::greater: return map_numbers<bool, S>(sizes, y, a, b, [](T u, T v) { return u > v; });
    }
  });
}

void where(size_t element_bytes, const Sizes& sizes, const Operand& y, const Operand& condition, const Operand& a,
           const Operand& b) {
  // Only bits move, so the size of an element is all that counts.
  switch (element_bytes) {
    case 1: return choose<uint8_t>(sizes, y, condition, a, b);
    case 2: return choose<uint16_t>(sizes, y, condition, a, b);
    case 4: return choose<uint32_t>(sizes, y, condition, a, b);
    case 8: return choose<uint64_t>(sizes, y, condition, a, b);
    default: fail("where", "expected elements of 1, 2, 4 or 8 bytes, got {}", element_bytes);
  }
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

HWY_EXPORT(binary);
void binary(Binary f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b) {
  NORMA_SIMD_BEST(binary)(f, dtype, sizes, y, a, b);
}

HWY_EXPORT(compare);
void compare(Comparison f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b) {
  NORMA_SIMD_BEST(compare)(f, dtype, sizes, y, a, b);
}

HWY_EXPORT(where);
void where(size_t element_bytes, const Sizes& sizes, const Operand& y, const Operand& condition, const Operand& a,
           const Operand& b) {
  NORMA_SIMD_BEST(where)(element_bytes, sizes, y, condition, a, b);
}

}  // namespace norma::kernels::cpu
#endif

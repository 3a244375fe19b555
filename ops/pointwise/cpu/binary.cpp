#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pointwise/cpu/binary.cpp"
#include "core/simd/foreach_target.h"

#include "ops/pointwise/cpu/loops.h"
#include "ops/pointwise/cpu/pointwise_kernels.h"

#include <cmath>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

namespace {

/// The larger one; NaN if either is NaN.
template <class T>
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return (a > b) | (a != a) ? a : b;
  } else {
    return a > b ? a : b;
  }
}

/// Integers wrap around as in NumPy and PyTorch; signed overflow would be undefined.
template <class T>
using arithmetic_t =
    typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<T>>::type;

}  // namespace

void binary(Binary f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b) {
  if (f == Binary::div || f == Binary::pow) {
    return dispatch_any_floating("binary", dtype, [&](auto tag) {
      using S = decltype(tag);
      using T = compute_t<S>;
      if (f == Binary::div) {
        map<S, S, S>(sizes, y, a, b, [](T u, T v) { return u / v; });
      } else {
        map<S, S, S>(sizes, y, a, b, [](T u, T v) { return std::pow(u, v); });
      }
    });
  }
  dispatch_numeric("binary", dtype, [&](auto tag) {
    using S = decltype(tag);
    using T = compute_t<S>;
    using M = arithmetic_t<S>;  // in memory
    using A = compute_t<M>;
    switch (f) {
      case Binary::add: return map<M, M, M>(sizes, y, a, b, [](A u, A v) { return u + v; });
      case Binary::sub: return map<M, M, M>(sizes, y, a, b, [](A u, A v) { return u - v; });
      case Binary::mul: return map<M, M, M>(sizes, y, a, b, [](A u, A v) { return u * v; });
      case Binary::maximum: return map<S, S, S>(sizes, y, a, b, [](T u, T v) { return larger(u, v); });
      case Binary::div:
      case Binary::pow: return;  // above
    }
  });
}

void compare(Comparison f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b) {
  dispatch_all(dtype, [&](auto tag) {
    using S = decltype(tag);
    using T = compute_t<S>;
    switch (f) {
      case Comparison::equal: return map<bool, S, S>(sizes, y, a, b, [](T u, T v) { return u == v; });
      case Comparison::greater: return map<bool, S, S>(sizes, y, a, b, [](T u, T v) { return u > v; });
    }
  });
}

void where(size_t element_bytes, const Sizes& sizes, const Operand& y, const Operand& condition, const Operand& a,
           const Operand& b) {
  // Only bits move, so the size of an element is all that counts.
  switch (element_bytes) {
    case 1: return select<uint8_t>(sizes, y, condition, a, b);
    case 2: return select<uint16_t>(sizes, y, condition, a, b);
    case 4: return select<uint32_t>(sizes, y, condition, a, b);
    case 8: return select<uint64_t>(sizes, y, condition, a, b);
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

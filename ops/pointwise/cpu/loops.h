// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_OPS_POINTWISE_CPU_LOOPS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_OPS_POINTWISE_CPU_LOOPS_H
#undef NORMA_OPS_POINTWISE_CPU_LOOPS_H
#else
#define NORMA_OPS_POINTWISE_CPU_LOOPS_H
#endif

#include "core/simd/targets.h"
#include "ops/pointwise/cpu/run.h"
#include "ops/pointwise/kernels.h"

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

// Elementwise loops over operands of any strides. Where the innermost axis is dense (or broadcast, for an input) a
// loop of its own runs, of which the compiler makes vector code. bfloat16 and float16 are read and written as such; the
// functions see and return float.

namespace detail {

using namespace kernels::detail;

/// Calls body(offsets, count, strides) for every run. `flatten` inlines all that the body calls, else the inner loops
/// of the longer functions would call them and stay scalar.
template <size_t N, class Body>
void run_with(const Sizes& sizes, const std::array<Strides, N>& strides, const Body& body) {
  const auto call =
      [](const void* b, const Places<N>& offsets, int64_t count, const Places<N>& s) __attribute__((flatten)) {
    (*static_cast<const Body*>(b))(offsets, count, s);
  };
  run<N>(sizes, strides, call, &body);
}

}  // namespace detail

/// y = f(x)
template <class Y, class X, class F>
void map(const Sizes& sizes, const Operand& y, const Operand& x, F f) {
  using V = compute_t<X>;
  using Places = detail::Places<2>;
  const auto body = [&](const Places& offsets, int64_t count, const Places& strides) {
    Y* out = static_cast<Y*>(y.data) + offsets[0];
    const X* in = static_cast<const X*>(x.data) + offsets[1];
    if (strides[0] == 1 && strides[1] == 1) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        assign(out[i], f(static_cast<V>(in[i])));
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        assign(out[i * strides[0]], f(static_cast<V>(in[i * strides[1]])));
      }
    }
  };
  detail::run_with<2>(sizes, {y.strides, x.strides}, body);
}

/// y = f(a, b)
template <class Y, class A, class B, class F>
void map(const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b, F f) {
  using U = compute_t<A>;
  using V = compute_t<B>;
  using Places = detail::Places<3>;
  const auto body = [&](const Places& offsets, int64_t count, const Places& strides) {
    Y* out = static_cast<Y*>(y.data) + offsets[0];
    const A* left = static_cast<const A*>(a.data) + offsets[1];
    const B* right = static_cast<const B*>(b.data) + offsets[2];
    if (strides[0] == 1 && strides[1] == 1 && strides[2] == 1) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        assign(out[i], f(static_cast<U>(left[i]), static_cast<V>(right[i])));
      }
    } else if (strides[0] == 1 && strides[1] == 1 && strides[2] == 0) {
      const auto value = static_cast<V>(*right);
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        assign(out[i], f(static_cast<U>(left[i]), value));
      }
    } else if (strides[0] == 1 && strides[1] == 0 && strides[2] == 1) {
      const auto value = static_cast<U>(*left);
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        assign(out[i], f(value, static_cast<V>(right[i])));
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        assign(out[i * strides[0]], f(static_cast<U>(left[i * strides[1]]), static_cast<V>(right[i * strides[2]])));
      }
    }
  };
  detail::run_with<3>(sizes, {y.strides, a.strides, b.strides}, body);
}

/// y = condition ? a : b
template <class T>
void select(const Sizes& sizes, const Operand& y, const Operand& condition, const Operand& a, const Operand& b) {
  using Places = detail::Places<4>;
  const auto body = [&](const Places& offsets, int64_t count, const Places& strides) {
    T* out = static_cast<T*>(y.data) + offsets[0];
    // Read as bytes: GCC 12 makes no vector code of a selection by bool.
    const auto* chosen = static_cast<const uint8_t*>(condition.data) + offsets[1];
    const T* left = static_cast<const T*>(a.data) + offsets[2];
    const T* right = static_cast<const T*>(b.data) + offsets[3];
    if (strides[0] == 1 && strides[1] == 1 && strides[2] == 1 && strides[3] == 1) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        const T one = left[i];
        const T other = right[i];
        out[i] = chosen[i] != 0 ? one : other;
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        out[i * strides[0]] = chosen[i * strides[1]] != 0 ? left[i * strides[2]] : right[i * strides[3]];
      }
    }
  };
  detail::run_with<4>(sizes, {y.strides, condition.strides, a.strides, b.strides}, body);
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#pragma once

#include "core/strided_loop.h"
#include "ops/pointwise/kernels.h"

namespace norma::pointwise {

// Elementwise loops over operands of any strides. Where the innermost axis is dense (or broadcast, for an input) a
// loop of its own runs, so that the compiler can make vector code of it; F must be inlinable.

/// y = f(x)
template <class Y, class X, class F>
void map(const Sizes& sizes, const Operand& y, const Operand& x, F f) {
  const auto loop = make_strided_loop<2>(sizes, {y.strides, x.strides});
  for_each_run(loop, [&](const auto& offsets, int64_t count, const auto& strides) {
    Y* out = static_cast<Y*>(y.data) + offsets[0];
    const X* in = static_cast<const X*>(x.data) + offsets[1];
    if (strides[0] == 1 && strides[1] == 1) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        out[i] = f(in[i]);
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        out[i * strides[0]] = f(in[i * strides[1]]);
      }
    }
  });
}

/// y = f(a, b)
template <class Y, class A, class B, class F>
void map(const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b, F f) {
  const auto loop = make_strided_loop<3>(sizes, {y.strides, a.strides, b.strides});
  for_each_run(loop, [&](const auto& offsets, int64_t count, const auto& strides) {
    Y* out = static_cast<Y*>(y.data) + offsets[0];
    const A* left = static_cast<const A*>(a.data) + offsets[1];
    const B* right = static_cast<const B*>(b.data) + offsets[2];
    if (strides[0] == 1 && strides[1] == 1 && strides[2] == 1) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        out[i] = f(left[i], right[i]);
      }
    } else if (strides[0] == 1 && strides[1] == 1 && strides[2] == 0) {
      const B value = *right;
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        out[i] = f(left[i], value);
      }
    } else if (strides[0] == 1 && strides[1] == 0 && strides[2] == 1) {
      const A value = *left;
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        out[i] = f(value, right[i]);
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        out[i * strides[0]] = f(left[i * strides[1]], right[i * strides[2]]);
      }
    }
  });
}

/// y = condition ? a : b
template <class T>
void select(const Sizes& sizes, const Operand& y, const Operand& condition, const Operand& a, const Operand& b) {
  const auto loop = make_strided_loop<4>(sizes, {y.strides, condition.strides, a.strides, b.strides});
  for_each_run(loop, [&](const auto& offsets, int64_t count, const auto& strides) {
    T* out = static_cast<T*>(y.data) + offsets[0];
    const bool* chosen = static_cast<const bool*>(condition.data) + offsets[1];
    const T* left = static_cast<const T*>(a.data) + offsets[2];
    const T* right = static_cast<const T*>(b.data) + offsets[3];
    if (strides[0] == 1 && strides[1] == 1 && strides[2] == 1 && strides[3] == 1) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        const T one = left[i];
        const T other = right[i];
        out[i] = chosen[i] ? one : other;
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        out[i * strides[0]] = chosen[i * strides[1]] ? left[i * strides[2]] : right[i * strides[3]];
      }
    }
  });
}

}  // namespace norma::pointwise

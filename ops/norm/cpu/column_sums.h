// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_OPS_NORM_CPU_COLUMN_SUMS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_OPS_NORM_CPU_COLUMN_SUMS_H
#undef NORMA_OPS_NORM_CPU_COLUMN_SUMS_H
#else
#define NORMA_OPS_NORM_CPU_COLUMN_SUMS_H
#endif

#include "ops/norm/cpu/run_loops.h"

#include <cstdint>
#include <type_traits>

// Sums over a few rows at a time, column by column: the sums are loaded and stored once for all of them. The next rows
// are prefetched meanwhile, since the hardware does not foresee them where a tile is a part of each row.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

/// first[j] += sum of d, second[j] += sum of d² over `rows` rows, with d = x - pivot[j].
template <int rows, class S, class T>
HWY_INLINE void add_shifted_rows(int64_t width, const S* x, int64_t stride, const T* pivot, T* first, T* second) {
  for_each_lanes<T>(width, [&](int64_t j, auto part) NORMA_INLINE {
    const Lanes<T> p = load(pivot + j, part);
    Lanes<T> sum = {};
    Lanes<T> squares = {};
#pragma GCC unroll 4
    for (int row = 0; row < rows; ++row) {
      __builtin_prefetch(x + (row + rows) * stride + j);
      const Lanes<T> d = load(x + row * stride + j, part) - p;
      sum += d;
      squares = multiply_add(d, d, squares);
    }
    store(first + j, load(first + j, part) + sum, part);
    store(second + j, load(second + j, part) + squares, part);
  });
}

/// first[j] += sum of dz, second[j] += sum of dz * xhat over `rows` rows. dy: the array from which dz is made, or dz.
template <int rows, class Dz, class S, class T>
HWY_INLINE void add_rows(int64_t width, Dz dz, int64_t dz_stride, const S* dy, const S* x, int64_t stride,
                         const T* mean, const T* mean_low, const T* rstd, T* first, T* second) {
  for_each_lanes<T>(width, [&](int64_t j, auto part) NORMA_INLINE {
    const Lanes<T> s = load(rstd + j, part);
    Lanes<T> sum = {};
    Lanes<T> sum_xhat = {};
#pragma GCC unroll 4
    for (int row = 0; row < rows; ++row) {
      __builtin_prefetch(x + (row + rows) * stride + j);
      __builtin_prefetch(dy + (row + rows) * stride + j);
      const Lanes<T> d = dz.ahead(row * dz_stride).get(j, part);
      sum += d;
      const Lanes<T> xhat = difference(x + row * stride, j, part, Varying<T>{mean}, Varying<T>{mean_low}) * s;
      sum_xhat = multiply_add(d, xhat, sum_xhat);
    }
    store(first + j, load(first + j, part) + sum, part);
    store(second + j, load(second + j, part) + sum_xhat, part);
  });
}

/// As above with g = dz * weight in place of dz, one weight for each row, and the gradients of these weights:
/// dweight[row] += sum of dz * xhat, dbias[row] += sum of dz. weight and both gradients may be null. It prefetches the
/// row that lies `ahead` rows further on.
template <int rows, int ahead, class D, class S, class T>
HWY_INLINE void add_weighted_rows_at_once(int64_t width, const D* dz, int64_t dz_stride, const S* dy, const S* x,
                                          int64_t stride, const T* weight, const T* mean, const T* mean_low,
                                          const T* rstd, T* first, T* second, double* dweight, double* dbias) {
  Lanes<T> dw[rows] = {};
  Lanes<T> db[rows] = {};
  T w[rows];
  for (int row = 0; row < rows; ++row) {
    w[row] = weight == nullptr ? T(1) : weight[row];
  }
  for_each_lanes<T>(width, [&](int64_t j, auto part) NORMA_INLINE {
    const Lanes<T> s = load(rstd + j, part);
    Lanes<T> sum = load(first + j, part);
    Lanes<T> sum_xhat = load(second + j, part);
#pragma GCC unroll 4
    for (int row = 0; row < rows; ++row) {
      __builtin_prefetch(x + (row + ahead) * stride + j);
      __builtin_prefetch(dy + (row + ahead) * stride + j);
      const Lanes<T> d = load(dz + row * dz_stride + j, part);
      const Lanes<T> d_xhat =
          keep(d * (difference(x + row * stride, j, part, Varying<T>{mean}, Varying<T>{mean_low}) * s), part);
      db[row] += d;
      dw[row] += d_xhat;
      sum = multiply_add(d, broadcast(w[row]), sum);
      sum_xhat = multiply_add(d_xhat, broadcast(w[row]), sum_xhat);
    }
    store(first + j, sum, part);
    store(second + j, sum_xhat, part);
  });
  for (int row = 0; row < rows && dweight != nullptr; ++row) {
    const TwoSums sums = add_lanes(dw[row], db[row]);
    dweight[row] += sums.first;
    dbias[row] += sums.second;
  }
}
template <int rows, class D, class S, class T>
HWY_INLINE void add_weighted_rows(int64_t width, const D* dz, int64_t dz_stride, const S* dy, const S* x,
                                  int64_t stride, const T* weight, const T* mean, const T* mean_low, const T* rstd,
                                  T* first, T* second, double* dweight, double* dbias) {
  const auto some = [&](auto at_once, int row) HWY_ATTR {
    add_weighted_rows_at_once<at_once, rows>(
        width, dz + row * dz_stride, dz_stride, dy + row * stride, x + row * stride, stride,
        weight == nullptr ? nullptr : weight + row, mean, mean_low, rstd, first, second,
        dweight == nullptr ? nullptr : dweight + row, dbias == nullptr ? nullptr : dbias + row);
  };
  // The sums of four rows fill the 16 registers of AVX2, so the rest goes through the stack. Short rows would lose more
  // by beginning twice.
  if constexpr (rows == 4 && kRegisterLanes<T> < kLanes<T>) {
    if (width >= 8 * kLanes<T>) {
      some(std::integral_constant<int, 2>{}, 0);
      some(std::integral_constant<int, 2>{}, 2);
      return;
    }
  }
  some(std::integral_constant<int, rows>{}, 0);
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

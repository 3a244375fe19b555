// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_OPS_NORM_CPU_SET_STATISTICS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_OPS_NORM_CPU_SET_STATISTICS_H
#undef NORMA_OPS_NORM_CPU_SET_STATISTICS_H
#else
#define NORMA_OPS_NORM_CPU_SET_STATISTICS_H
#endif

#include "core/simd/targets.h"
#include "ops/norm/cpu/statistics.h"

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

// Statistics of neighbouring sets, side by side.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

/// store_statistics() of neighbouring sets from the sums of d and d² over each, with d = x - pivot.
template <class S, class T = compute_t<S>>
inline void store_sets(const NormProblem& problem, const NormArrays<S>& arrays, int64_t first_set, int64_t sets,
                       const T* pivot, const double* sum, const double* squares) {
  const auto count = static_cast<double>(problem.shape.set_size());
  if (problem.centring == Centring::deviation ||
      (problem.centring == Centring::mean && problem.statistics == Statistics::sum_of_squares)) {
    for (int64_t i = 0; i < sets; ++i) {
      store_statistics(problem, moments_of(problem.raw_sums(), count, pivot[i], sum[i], squares[i]), arrays,
                       first_set + i);
    }
    return;
  }
  // The common cases as one loop without branches. mean = pivot + sum / n, M2 = squares - sum² / n
  const bool centred = problem.centring == Centring::mean;
  const double by_count = 1 / count;
  const double freedom = centred ? count - static_cast<double>(problem.correction) : count;
  T* mean = arrays.mean + first_set;
  T* mean_low = arrays.mean_low + first_set;
  T* rstd = arrays.rstd + first_set;
  T* var = arrays.var == nullptr ? rstd : arrays.var + first_set;  // rstd is written after it
  bool lost = false;
#pragma omp simd reduction(| : lost)
  for (int64_t i = 0; i < sets; ++i) {
    const double from_pivot = centred ? sum[i] * by_count : 0.0;
    const double m2 = centred ? squares[i] - sum[i] * from_pivot : squares[i];  // an infinite sum times 0 is NaN
    const double wide_var = (m2 < 0 ? 0.0 : m2) / freedom;
    const T rounded = static_cast<T>(pivot[i] + from_pivot);
    mean[i] = rounded;
    mean_low[i] = static_cast<T>((pivot[i] - static_cast<double>(rounded)) + from_pivot);
    var[i] = static_cast<T>(wide_var);
    rstd[i] = static_cast<T>(1 / std::sqrt(wide_var + problem.eps));
    lost |= squares_are_lost<T>(problem, wide_var);
  }
  if (lost) [[unlikely]] {
    for (int64_t i = 0; i < sets; ++i) {
      const double m2 = centred ? squares[i] - sum[i] * (sum[i] * by_count) : squares[i];
      if (squares_are_lost<T>(problem, (m2 < 0 ? 0.0 : m2) / freedom)) {
        store_scaled_statistics(problem, arrays, first_set + i);
      }
    }
  }
}

/// Moves each pivot that was far from the mean to the mean it led to, and returns how many. The others stay, since a
/// set's bits must not depend on its neighbours.
template <class T>
inline int64_t move_far_pivots(double count, int64_t sets, T* pivot, const double* sum, const double* squares) {
  int64_t far = 0;
#pragma omp simd reduction(+ : far)
  for (int64_t i = 0; i < sets; ++i) {
    // More than two standard deviations: m2 has lost digits.
    const double offset = sum[i] / count;
    const double m2 = squares[i] - sum[i] * offset;
    const bool is_far = offset * offset * count > 4 * m2;
    far += is_far ? 1 : 0;
    pivot[i] = is_far ? static_cast<T>(pivot[i] + offset) : pivot[i];
  }
  return far;
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

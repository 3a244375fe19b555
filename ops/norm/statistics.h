#pragma once

#include "ops/norm/kernels.h"

#include <cmath>
#include <cstdint>
#include <limits>

// The formulas of statistics, from sums to the constants of a norm, for the kernels of every device.

#ifdef NORMA_BACKEND
#define NORMA_FORMULA NORMA_DEVICE
namespace norma::kernels::NORMA_BACKEND {
#else
#define NORMA_FORMULA inline
namespace norma::kernels::cpu {
#endif

/// Statistics of some of a set's elements: the mean is pivot + offset, m2 the sum of squared differences from it. With
/// raw sums, pivot is 0, offset the sum of all elements, and m2 the sum of their squares.
struct Moments {
  double pivot = 0;
  double offset = 0;
  double m2 = 0;
};

/// The stored statistics of a set.
template <class T>
struct SetStatistics {
  T mean;
  T mean_low;
  T rstd;
  T var;
  bool lost;  ///< squares have left the range of T; see scaled_statistics()
};

/// True iff squares have left the range of T: var is infinite or NaN, or so small that the squares behind it lost
/// digits and eps does not cover it. False for E[x²] - E[x]² (Statistics::sum_of_squares), whose loss of digits the
/// caller has asked for.
template <class T>
NORMA_FORMULA bool squares_are_lost(const NormProblem& problem, double var) {
  constexpr auto kLeast = static_cast<double>(std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon());
  const bool asked_for = problem.statistics == Statistics::sum_of_squares && problem.centring != Centring::none;
  return !asked_for && (!(var - var == 0) || var + problem.eps < kLeast);
}

/// The statistics of a set from its moments: var = M2 / (n - correction), rstd = 1 / sqrt(var + eps).
template <class T>
NORMA_FORMULA SetStatistics<T> statistics_of(const NormProblem& problem, const Moments& moments) {
  const auto count = static_cast<double>(problem.shape.set_size());
  const double freedom = count - static_cast<double>(problem.correction);
  T mean = 0;
  T mean_low = 0;
  T var;
  double wide_var;
  if (problem.centring == Centring::none) {
    wide_var = moments.m2 / count;
    var = static_cast<T>(wide_var);
  } else if (problem.statistics == Statistics::sum_of_squares) {
    // E[x²] - E[x]² in T, as asked for; rounding can make it negative.
    mean = static_cast<T>(moments.offset / count);
    const T difference = static_cast<T>(moments.m2 / count) - mean * mean;
    var = (difference < T(0) ? T(0) : difference) * static_cast<T>(count / freedom);
    wide_var = var;
  } else {
    mean = static_cast<T>(moments.pivot + moments.offset);
    mean_low = static_cast<T>((moments.pivot - static_cast<double>(mean)) + moments.offset);
    wide_var = moments.m2 / freedom;
    var = static_cast<T>(wide_var);
  }
  return {mean, mean_low, static_cast<T>(1 / std::sqrt(wide_var + problem.eps)), var,
          squares_are_lost<T>(problem, wide_var)};
}

/// The power of two that makes the largest element of a set about 1.
NORMA_FORMULA double scale_of(double largest) {
  constexpr int kMaxExponent = std::numeric_limits<double>::max_exponent - 1;
  const int exponent = largest == 0 ? 0 : -std::ilogb(largest);
  return std::ldexp(1.0, exponent < -kMaxExponent ? -kMaxExponent : exponent > kMaxExponent ? kMaxExponent : exponent);
}

/// The statistics from elements multiplied by `scale`: their mean in two parts, and the sum of squares about it.
template <class T>
NORMA_FORMULA SetStatistics<T> statistics_of_scaled(const NormProblem& problem, double scale, double mean,
                                                    double mean_low, double squares) {
  const auto count = static_cast<double>(problem.shape.set_size());
  const double freedom = problem.centring == Centring::none ? count : count - static_cast<double>(problem.correction);
  const double var = squares / freedom;
  const T rounded = static_cast<T>((mean + mean_low) / scale);
  const T rounded_low = static_cast<T>(((mean - static_cast<double>(rounded) * scale) + mean_low) / scale);
  const T rstd = static_cast<T>(scale / std::hypot(std::sqrt(var), std::sqrt(problem.eps) * scale));
  return {rounded, rounded_low, rstd, static_cast<T>(var / scale / scale), false};
}

/// The statistics of a set with NaN or infinite elements. An infinite pivot hides the mean, but the sum itself has the
/// sign of the infinite elements; deviations from such a mean are NaN.
template <class T>
NORMA_FORMULA SetStatistics<T> statistics_of_not_finite(const NormProblem& problem, double sum) {
  constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();
  return {static_cast<T>(sum / static_cast<double>(problem.shape.set_size())), T(0), kNaN, kNaN, false};
}

/// A running statistic after a batch.
NORMA_FORMULA double running_after(double running, double batch, double momentum, double factor) {
  return (1 - momentum) * running + momentum * (factor * batch);
}

/// Brings the running statistics of a set, if there are any, up to date with those of a batch.
template <class T>
NORMA_FORMULA void update_running_set(const RunningStatistics<T>& running, int64_t set, T mean, T var) {
  if (running.mean == nullptr) {
    return;
  }
  running.mean[set] = static_cast<T>(
      running_after(static_cast<double>(running.mean[set]), static_cast<double>(mean), running.momentum, 1));
  running.var[set] = static_cast<T>(running_after(static_cast<double>(running.var[set]), static_cast<double>(var),
                                                  running.momentum, running.var_factor));
  if (set == 0 && running.batches != nullptr) {
    ++*running.batches;
  }
}

template <class S, class T = compute_t<S>>
NORMA_FORMULA void store_set(const NormProblem& problem, const ForwardArrays<S>& arrays, int64_t set,
                             const SetStatistics<T>& of_set) {
  const bool subtracted = problem.centring != Centring::deviation;
  if (!subtracted) {
    arrays.centre[set] = of_set.mean;
    arrays.centre_low[set] = of_set.mean_low;
  }
  arrays.mean[set] = subtracted ? of_set.mean : T(0);
  arrays.mean_low[set] = subtracted ? of_set.mean_low : T(0);
  arrays.rstd[set] = of_set.rstd;
  if (arrays.var != nullptr) {
    arrays.var[set] = of_set.var;
  }
}

/// The constants of a set in dx = dz * weight * rstd + d * rstd * by_xhat + shift, with d = (x - mean) - mean_low, or
/// (x - centre) - centre_low for Centring::deviation.
template <class T>
struct InputGradient {
  T by_xhat = 0;
  T shift = 0;
};

/// The InputGradient of a set from its sums of g and g * xhat, with g = dz * weight, xhat = ((x - mean) - mean_low) *
/// rstd, n elements and correction k:
///   mean:      dx = rstd * (g - sum(g) / n - d * rstd * sum(g * xhat) / (n - k))
///   none:      dx = rstd * (g - d * rstd * sum(g * xhat) / n)
///   deviation: dx = rstd * (g - d * rstd * sum(g * xhat) / (n - k))
///   fixed:     dx = rstd * g
class InputGradients {
 public:
  constexpr explicit InputGradients(const NormProblem& problem)
      : by_freedom_(1 / static_cast<double>(problem.shape.set_size() - problem.correction)),
        by_count_(problem.centring == Centring::mean ? 1 / static_cast<double>(problem.shape.set_size()) : 0) {}

  template <class T>
  NORMA_FORMULA InputGradient<T> of(double rstd, double sum_g, double sum_g_xhat) const {
    return {static_cast<T>(by_xhat(rstd, sum_g_xhat)), static_cast<T>(shift(rstd, sum_g))};
  }
  [[nodiscard]] NORMA_FORMULA double by_xhat(double rstd, double sum_g_xhat) const {
    return -rstd * sum_g_xhat * by_freedom_;
  }
  /// 0 where nothing is subtracted, whatever the sum.
  [[nodiscard]] NORMA_FORMULA double shift(double rstd, double sum_g) const {
    return by_count_ == 0 ? 0 : -rstd * sum_g * by_count_;
  }

 private:
  double by_freedom_;
  double by_count_;
};

#undef NORMA_FORMULA

}  // namespace norma::kernels::cpu or norma::kernels::NORMA_BACKEND

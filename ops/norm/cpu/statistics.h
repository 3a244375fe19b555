#pragma once

#include "ops/norm/arrays.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

// The arithmetic of statistics, from sums to what normalises.

namespace norma::kernels::cpu {

/// Two sums.
template <class T>
struct Pair {
  T first = {};
  T second = {};
};

/// Statistics of some of a set's elements: the mean is pivot + offset, m2 the sum of squared differences from it.
/// Raw: pivot is 0, offset the sum of all elements, m2 that of their squares.
struct Moments {
  double pivot = 0;
  double offset = 0;
  double m2 = 0;
};

/// From the sums of d and d² with d = x - pivot.
inline Moments moments_of(bool raw, double count, double pivot, double sum, double square_sum) {
  if (raw) {
    return {0, sum, square_sum};
  }
  const double offset = sum / count;
  return {pivot, offset, std::max(square_sum - sum * offset, 0.0)};
}

/// Chan, Golub and LeVeque, 1979: the moments of the union of a (count_a elements) and b (count_b > 0 elements).
inline Moments merge(bool raw, const Moments& a, double count_a, const Moments& b, double count_b) {
  if (raw) {
    return {0, a.offset + b.offset, a.m2 + b.m2};
  }
  const double share = count_b / (count_a + count_b);
  const double delta = (b.pivot - a.pivot) + (b.offset - a.offset);
  return {a.pivot, a.offset + delta * share, a.m2 + b.m2 + delta * delta * (count_a * share)};
}

/// Writes the stats of one set.
template <class S, class T>
inline void store_set(const NormProblem& problem, const ForwardArrays<S>& arrays, int64_t set, T mean, T mean_low,
                      T rstd, T var) {
  const bool subtracted = problem.centring != Centring::deviation;
  if (!subtracted) {
    arrays.centre[set] = mean;
    arrays.centre_low[set] = mean_low;
  }
  arrays.mean[set] = subtracted ? mean : T(0);
  arrays.mean_low[set] = subtracted ? mean_low : T(0);
  arrays.rstd[set] = rstd;
  if (arrays.var != nullptr) {
    arrays.var[set] = var;
  }
}

/// True iff squares have left the range of T: var is infinite, or so small that the squares it is made of lost digits
/// and eps does not cover it. E[x²] - E[x]² is left as it is.
template <class T>
inline bool squares_are_lost(const NormProblem& problem, double var) {
  constexpr double kLeast = std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon();
  const bool asked_for = problem.statistics == Statistics::sum_of_squares && problem.centring != Centring::none;
  return !asked_for && (!std::isfinite(var) || var + problem.eps < kLeast);
}
/// The statistics of such a set, from its elements multiplied by a power of two, in double. Where an element is NaN or
/// infinite: the mean is the plain one, infinite or NaN, and the variance NaN; without centring false, with nothing
/// done.
template <class S>
bool store_scaled_statistics(const NormProblem& problem, const ForwardArrays<S>& arrays, int64_t set);

/// Mean, variance and so on of set number `set`, from the moments of all its elements, into the arrays.
template <class S>
inline void store_statistics(const NormProblem& problem, const Moments& moments, const ForwardArrays<S>& arrays,
                             int64_t set) {
  using T = compute_t<S>;
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
  if (squares_are_lost<T>(problem, wide_var) && store_scaled_statistics(problem, arrays, set)) [[unlikely]] {
    return;
  }
  store_set(problem, arrays, set, mean, mean_low, static_cast<T>(1 / std::sqrt(wide_var + problem.eps)), var);
}

/// The constants of a set in dx = dz * weight * rstd + d * rstd * by_xhat + shift, with d = (x - mean) - mean_low, or
/// (x - centre) - centre_low for Centring::deviation.
struct InputGradient {
  double by_xhat = 0;
  double shift = 0;
};

/// From the sums of g and g * xhat over a set, with g = dz * weight, xhat = ((x - mean) - mean_low) * rstd, n elements
/// and correction k:
///   mean:      dx = rstd * (g - sum(g) / n - d * rstd * sum(g * xhat) / (n - k))
///   none:      dx = rstd * (g - d * rstd * sum(g * xhat) / n)
///   deviation: dx = rstd * (g - d * rstd * sum(g * xhat) / (n - k))
///   fixed:     dx = rstd * g
class InputGradients {
 public:
  explicit InputGradients(const NormProblem& problem)
      : by_freedom_(1 / static_cast<double>(problem.shape.set_size() - problem.correction)),
        by_count_(problem.centring == Centring::mean ? 1 / static_cast<double>(problem.shape.set_size()) : 0) {}

  [[nodiscard]] InputGradient of(double rstd, double sum_g, double sum_g_xhat) const {
    return {by_xhat(rstd, sum_g_xhat), shift(rstd, sum_g)};
  }
  [[nodiscard]] double by_xhat(double rstd, double sum_g_xhat) const { return -rstd * sum_g_xhat * by_freedom_; }
  /// 0 where nothing is subtracted, whatever the sum.
  [[nodiscard]] double shift(double rstd, double sum_g) const { return by_count_ == 0 ? 0 : -rstd * sum_g * by_count_; }

 private:
  double by_freedom_;
  double by_count_;
};

/// d = (x - first) - second; see InputGradient.
template <class S, class T = compute_t<S>>
inline Pair<T> centre_of(const BackwardArrays<S>& arrays, int64_t set) {
  return arrays.centre == nullptr ? Pair<T>{arrays.mean[set], arrays.mean_low[set]}
                                  : Pair<T>{arrays.centre[set], arrays.centre_low[set]};
}

}  // namespace norma::kernels::cpu

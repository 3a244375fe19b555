#pragma once

#include "ops/norm/cuda/elements.h"
#include "ops/norm/cuda/sums.h"

#include <limits>

// From sums to what normalises: the formulas of ops/norm/cpu/statistics.h.

namespace norma::kernels::NORMA_BACKEND {

/// Statistics of a set: the mean is pivot + offset, m2 the sum of squared differences from it. Raw: pivot is 0, offset
/// the sum of all elements, m2 that of their squares.
struct Moments {
  double pivot;
  double offset;
  double m2;
};

/// From the sums of d and d² with d = x - pivot.
NORMA_DEVICE Moments moments_of(bool raw, double count, double pivot, double sum, double squares) {
  if (raw) {
    return {0, sum, squares};
  }
  const double offset = sum / count;
  const double m2 = fused_multiply_add(-sum, offset, squares);
  return {pivot, offset, m2 < 0 ? 0 : m2};
}

/// The moments of a set by sums about `near`, by all threads of the team.
template <class S, class Team, class T = compute_t<S>>
NORMA_DEVICE Moments moments_about(const NormProblem& problem, const S* x, int64_t set, T near, const Team& team) {
  WideSums<double> sums;
  for (SetElements i(problem.shape, set, team.rank(), team.size()); !i.ended(); i.next()) {
    const double d = static_cast<double>(to_number(x[i.offset()])) - static_cast<double>(near);
    sums.add(d, d, d);
  }
  double sum = sums.total_first;
  double squares = sums.total_second;
  team.sum(sum, squares);
  return moments_of(/* raw= */ false, static_cast<double>(problem.shape.set_size()), static_cast<double>(near), sum,
                    squares);
}

/// True iff the pivot was more than two standard deviations from the mean: m2 has lost digits.
NORMA_DEVICE bool is_far(double count, double sum, double squares) {
  const double offset = sum / count;
  return offset * offset * count > 4 * (squares - sum * offset);
}

/// What is stored of a set.
template <class T>
struct SetStatistics {
  T mean;
  T mean_low;
  T rstd;
  T var;
  bool lost;  ///< squares have left the range of T, see scaled_statistics()
};

/// True iff var is infinite or NaN, or so small that the squares it is made of lost digits and eps does not cover it.
template <class T>
NORMA_DEVICE bool squares_are_lost(const NormProblem& problem, double var) {
  constexpr double kLeast = static_cast<double>(std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon());
  const bool asked_for = problem.statistics == Statistics::sum_of_squares && problem.centring != Centring::none;
  return !asked_for && (!(var - var == 0) || var + problem.eps < kLeast);
}

template <class T>
NORMA_DEVICE SetStatistics<T> statistics_of(const NormProblem& problem, const Moments& moments) {
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

template <class S, class T = compute_t<S>>
NORMA_DEVICE void store_set(const NormProblem& problem, const ForwardArrays<S>& arrays, int64_t set,
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

/// The statistics of a set whose squares have left the range of T, from its elements multiplied by a power of two, in
/// double; by all threads of the team. `plain`: what the plain sums gave, kept where an element is NaN or infinite and
/// nothing is centred.
template <class S, class Team, class T = compute_t<S>>
NORMA_DEVICE SetStatistics<T> scaled_statistics(const NormProblem& problem, const S* x, int64_t set, const Team& team,
                                                const SetStatistics<T>& plain) {
  const NormShape& shape = problem.shape;
  const auto count = static_cast<double>(shape.set_size());
  const auto sum_over = [&](auto term) {
    double sum = 0;
    for (SetElements i(shape, set, team.rank(), team.size()); !i.ended(); i.next()) {
      sum += term(static_cast<double>(to_number(x[i.offset()])));
    }
    return team.sum(sum);
  };
  double largest = 0;
  double not_finite = 0;
  for (SetElements i(shape, set, team.rank(), team.size()); !i.ended(); i.next()) {
    const auto value = static_cast<double>(to_number(x[i.offset()]));
    const double size = std::fabs(value);
    largest = size > largest ? size : largest;
    not_finite += value - value == 0 ? 0 : 1;
  }
  largest = team.largest(largest);
  // Lanes of a warp that have other sets go the same way, for the shuffles: what is chosen, is chosen at the end.
  const bool finite = team.sum(not_finite) == 0;
  const double plain_sum = sum_over([](double value) { return value; });
  // The largest element times the scale is about 1.
  constexpr int kMaxExponent = std::numeric_limits<double>::max_exponent - 1;
  int exponent = largest == 0 || !finite ? 0 : -std::ilogb(largest);
  exponent = exponent < -kMaxExponent ? -kMaxExponent : exponent > kMaxExponent ? kMaxExponent : exponent;
  const double scale = std::ldexp(1.0, exponent);
  // mean + mean_low = sum(x) / n, in units of 1 / scale; the second round adds what the first lost to rounding
  double mean = 0;
  double mean_low = 0;
  if (problem.centring != Centring::none) {
    mean = sum_over([=](double value) { return value * scale; }) / count;
    mean_low = sum_over([=](double value) { return (value * scale - mean) / count; });
  }
  const double squares = sum_over([=](double value) {
    const double d = (value * scale - mean) - mean_low;
    return d * d;
  });
  if (!finite && problem.centring == Centring::none) {
    return plain;
  }
  if (!finite) {
    // Where a pivot was infinite, the mean is lost in what was subtracted. The sum itself has the sign of the infinite
    // elements; deviations from such a mean are NaN.
    constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();
    return {static_cast<T>(plain_sum / count), T(0), kNaN, kNaN, false};
  }
  const double freedom = problem.centring == Centring::none ? count : count - static_cast<double>(problem.correction);
  const double var = squares / freedom;
  const T rounded = static_cast<T>((mean + mean_low) / scale);
  const T rounded_low = static_cast<T>(((mean - static_cast<double>(rounded) * scale) + mean_low) / scale);
  const T rstd = static_cast<T>(scale / std::hypot(std::sqrt(var), std::sqrt(problem.eps) * scale));
  return {rounded, rounded_low, rstd, static_cast<T>(var / scale / scale), false};
}

/// The constants of a set in dx = dz · weight · rstd + d · rstd · by_xhat + shift, with d = (x - centre) - centre_low;
/// see InputGradients of ops/norm/cpu/statistics.h.
template <class T>
struct InputGradient {
  T by_xhat;
  T shift;
};
template <class T>
NORMA_DEVICE InputGradient<T> input_gradient(const NormProblem& problem, T rstd, double sum_g, double sum_g_xhat) {
  const auto count = static_cast<double>(problem.shape.set_size());
  const double by_freedom = 1 / (count - static_cast<double>(problem.correction));
  const double by_count = 1 / count;
  return {static_cast<T>(-static_cast<double>(rstd) * sum_g_xhat * by_freedom),
          problem.centring == Centring::mean ? static_cast<T>(-static_cast<double>(rstd) * sum_g * by_count) : T(0)};
}

}  // namespace norma::kernels::NORMA_BACKEND

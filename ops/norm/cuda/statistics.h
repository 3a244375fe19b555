#pragma once

#include "ops/norm/cuda/elements.h"
#include "ops/norm/cuda/sums.h"
#include "ops/norm/statistics.h"

// Statistics of a set, which the threads of a team compute together.

namespace norma::kernels::NORMA_BACKEND {

/// The moments of a set from its sums of d and d² with d = x - pivot.
NORMA_DEVICE Moments moments_of(bool raw, double count, double pivot, double sum, double squares) {
  if (raw) {
    return {0, sum, squares};
  }
  const double offset = sum / count;
  const double m2 = fused_multiply_add(-sum, offset, squares);
  return {pivot, offset, m2 < 0 ? 0 : m2};
}

/// The moments of a set by sums about `near`. All threads of the team call it.
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

/// The statistics of a set whose squares have left the range of T, in double, from its elements multiplied by a power
/// of two. All threads of the team call it. `plain`, from the plain sums, is kept if an element is NaN or infinite and
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
  // Lanes of a warp with other sets take the same steps, for the shuffles; the choice comes at the end.
  const bool finite = team.sum(not_finite) == 0;
  const double plain_sum = sum_over([](double value) { return value; });
  const double scale = scale_of(largest);
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
    return statistics_of_not_finite<T>(problem, plain_sum);
  }
  return statistics_of_scaled<T>(problem, scale, mean, mean_low, squares);
}

/// The constants of a set's dx from its sums of g and g * xhat.
template <class T>
NORMA_DEVICE InputGradient<T> input_gradient(const NormProblem& problem, T rstd, double sum_g, double sum_g_xhat) {
  return InputGradients(problem).of<T>(static_cast<double>(rstd), sum_g, sum_g_xhat);
}

/// Writes dweight and dbias of a weight, where they are wanted.
template <class S>
NORMA_DEVICE void store_weight_gradient(const BackwardArrays<S>& arrays, int64_t weight, double sum_dz,
                                        double sum_dz_xhat) {
  using T = compute_t<S>;
  if (arrays.dweight != nullptr) {
    arrays.dweight[weight] = static_cast<T>(sum_dz_xhat);
  }
  if (arrays.dbias != nullptr) {
    arrays.dbias[weight] = static_cast<T>(sum_dz);
  }
}

/// dx = dz · by_dz + xhat · by_xhat + shift, with by_dz = weight · rstd. Fixed statistics leave the first term alone.
template <class T>
NORMA_DEVICE T dx_of(bool fixed_stats, T dz, T by_dz, T xhat, const InputGradient<T>& of_set) {
  return fixed_stats ? dz * by_dz
                     : fused_multiply_add(dz, by_dz, fused_multiply_add(xhat, of_set.by_xhat, of_set.shift));
}

}  // namespace norma::kernels::NORMA_BACKEND

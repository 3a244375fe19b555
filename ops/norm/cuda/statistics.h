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

/// The statistics of sets as statistics_of() has them, from sums about a mean that is nearly right. It computes in T,
/// with a low part where T alone would lose digits: float64 takes many times as long on most GPUs. Hosts make it.
template <class T>
class NearStatistics {
 public:
  explicit NearStatistics(const NormProblem& problem)
      : by_count_(static_cast<T>(1 / static_cast<double>(problem.shape.set_size()))),
        eps_(static_cast<T>(problem.eps)),
        eps_low_(static_cast<T>(problem.eps - static_cast<double>(eps_))),
        centred_(problem.centring != Centring::none) {
    const double freedom = static_cast<double>(problem.shape.set_size() - (centred_ ? problem.correction : 0));
    by_freedom_ = static_cast<T>(1 / freedom);
    by_freedom_low_ = static_cast<T>(1 / freedom - static_cast<double>(by_freedom_));
  }

  /// mean + mean_low = pivot + sum / n, from the sum of x - pivot.
  NORMA_DEVICE void near_mean(T pivot, T sum, T& mean, T& mean_low) const {
    const T offset = sum * by_count_;
    mean = pivot + offset;
    mean_low = (pivot - mean) + offset;
  }

  /// sum and squares: of d = (x - mean) - mean_low. Where nothing is centred, mean and mean_low are 0.
  NORMA_DEVICE SetStatistics<T> of(T mean, T mean_low, T sum, T squares) const {
    const T offset = centred_ ? sum * by_count_ : T(0);
    const T difference = fused_multiply_add(-sum, offset, squares);
    const T m2 = difference < T(0) ? T(0) : difference;  // NaN stays
    // var = m2 / freedom and var + eps, each in two parts
    const T var = m2 * by_freedom_;
    const T var_low = fused_multiply_add(m2, by_freedom_low_, fused_multiply_add(m2, by_freedom_, -var));
    const T sum_eps = var + eps_;
    const T of_eps = sum_eps - var;
    const T lost_eps = (var - (sum_eps - of_eps)) + (eps_ - of_eps);
    const T sum_low = lost_eps + (var_low + eps_low_);
    // A step of Newton's makes 1 / sqrt exact but for its last rounding: r (1 + e / 2) with e = 1 - (v + v_low) r².
    T rstd = T(1) / std::sqrt(sum_eps);
    const T vr = sum_eps * rstd;
    const T vr_low = fused_multiply_add(sum_eps, rstd, -vr);
    const T e = fused_multiply_add(-vr, rstd, T(1)) - (vr_low + sum_low * rstd) * rstd;
    rstd = sum_eps > T(0) && e - e == T(0) ? fused_multiply_add(rstd * T(0.5), e, rstd) : rstd;
    const T low = mean_low + offset;
    const T whole = mean + low;
    constexpr T kLeast = std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon();
    return {whole, (mean - whole) + low, rstd, var + var_low, !(var - var == T(0)) || sum_eps < kLeast};
  }

 private:
  T by_count_;
  T by_freedom_;
  T by_freedom_low_;
  T eps_;
  T eps_low_;
  bool centred_;
};

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
NORMA_DEVICE void store_weight_gradient(const NormArrays<S>& arrays, int64_t weight, double sum_dz,
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

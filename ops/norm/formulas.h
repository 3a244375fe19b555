#pragma once

#include "ops/norm/kernels.h"

#include <cmath>
#include <cstdint>
#include <limits>

// The formulas of statistics, from elements and sums to the constants of a norm, for the kernels of every device.

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

// --- statistics that take passes over a set of their own ------------------------------------------------------------

// A `Pass` goes over the elements of one set, by the threads of a team or by itself:
//   first()                an element of the set
//   each<State>(add)       starts every part of the set with State{} and calls add(state, number) for its elements
//   sum(states, term)      the total of term(state) over the parts
//   largest(states, term)  the largest of them
//   sum_in_two_parts(states, high, low)  the sums that were made with add_compensated(), with what they have lost

/// A sum, and what it has lost to rounding.
template <class T>
struct CompensatedSum {
  T sum = 0;
  T lost = 0;
};
/// Neumaier, "Rundungsfehleranalyse einiger Verfahren zur Summation endlicher Summen", 1974.
template <class T>
NORMA_FORMULA void add_compensated(CompensatedSum<T>& to, T value) {
  const T total = to.sum + value;
  to.lost += std::fabs(to.sum) >= std::fabs(value) ? (to.sum - total) + value : (value - total) + to.sum;
  to.sum = total;
}

/// mean += (x - mean) / n, M2 += (x - old mean) * (x - new mean). Welford, "Note on a method for calculating corrected
/// sums of squares and products", 1962. The parts of a set are merged by Chan's formula.
template <class T, class Pass>
NORMA_FORMULA Moments welford_moments(const Pass& pass, double count) {
  struct Part {
    T mean = 0;
    T m2 = 0;
    T seen = 0;
  };
  const auto parts = pass.template each<Part>([](Part& part, T value) {
    part.seen += T(1);
    const T delta = value - part.mean;
    part.mean += delta / part.seen;
    part.m2 += delta * (value - part.mean);
  });
  // Means are added up as differences from an element: float64 has no wider type that would hold their sum.
  const auto near = static_cast<double>(pass.first());
  const auto from_near = [=](const Part& part) {
    return part.seen > T(0) ? static_cast<double>(part.mean) - near : 0.0;
  };
  const double all_from_near =
      pass.sum(parts, [=](const Part& part) { return static_cast<double>(part.seen) * from_near(part); }) / count;
  const double m2 = pass.sum(parts, [=](const Part& part) {
    const double from_all = from_near(part) - all_from_near;
    return static_cast<double>(part.m2) + static_cast<double>(part.seen) * from_all * from_all;
  });
  return {static_cast<double>(static_cast<T>(near + all_from_near)), 0, m2};
}

/// mean = sum(x) / n, M2 = sum((x - mean)²)
template <class T, class Pass>
NORMA_FORMULA Moments two_pass_moments(const Pass& pass, double count) {
  const auto wide = [](T sum) { return static_cast<double>(sum); };
  const T mean = static_cast<T>(pass.sum(pass.template each<T>([](T& sum, T value) { sum += value; }), wide) / count);
  const auto squares = pass.template each<T>([=](T& sum, T value) {
    const T d = value - mean;
    sum += d * d;
  });
  return {static_cast<double>(mean), 0, pass.sum(squares, wide)};
}

/// As two_pass_moments(), with sums that carry their rounding errors along and the mean as high + low.
template <class T, class Pass>
NORMA_FORMULA Moments compensated_moments(const Pass& pass, double count) {
  using Sum = CompensatedSum<T>;
  double high_sum = 0;
  double low_sum = 0;
  pass.sum_in_two_parts(pass.template each<Sum>([](Sum& sum, T value) { add_compensated(sum, value); }), high_sum,
                        low_sum);
  const T high = static_cast<T>((high_sum + low_sum) / count);
  const T low = static_cast<T>((std::fma(-count, static_cast<double>(high), high_sum) + low_sum) / count);
  const auto squares = pass.template each<Sum>([=](Sum& sum, T value) {
    const T d = (value - high) - low;
    add_compensated(sum, d * d);
  });
  const double m2 =
      pass.sum(squares, [](const Sum& sum) { return static_cast<double>(sum.sum) + static_cast<double>(sum.lost); });
  return {static_cast<double>(high), static_cast<double>(low), m2};
}

/// The moments of a set as the textbooks write them, in T, to compare `stable` with (NormProblem::by_textbook()).
template <class T, class Pass>
NORMA_FORMULA Moments textbook_moments(const NormProblem& problem, const Pass& pass) {
  const auto count = static_cast<double>(problem.shape.set_size());
  switch (problem.statistics) {
    case Statistics::welford: return welford_moments<T>(pass, count);
    case Statistics::two_pass: return two_pass_moments<T>(pass, count);
    default: return compensated_moments<T>(pass, count);
  }
}

/// The power of two that makes the largest element of a set about 1.
NORMA_FORMULA double scale_of(double largest) {
  constexpr int kMaxExponent = std::numeric_limits<double>::max_exponent - 1;
  const int exponent = largest == 0 ? 0 : -std::ilogb(largest);
  return std::ldexp(1.0, exponent < -kMaxExponent ? -kMaxExponent : exponent > kMaxExponent ? kMaxExponent : exponent);
}

/// The statistics of a set whose squares have left the range of T, in double, from its elements multiplied by a power
/// of two. `plain`, from the plain sums, is kept if an element is NaN or infinite and nothing is centred. Otherwise
/// such a set has an infinite mean or NaN, which the plain sum gives (an infinite pivot hides it), and a rstd of NaN.
/// Lanes of a warp with other sets take the same steps, for the shuffles; the choice comes at the end.
template <class T, class Pass>
NORMA_FORMULA SetStatistics<T> scaled_statistics(const NormProblem& problem, const Pass& pass,
                                                 const SetStatistics<T>& plain) {
  struct Range {
    double largest = 0;
    double sum = 0;
    double not_finite = 0;
  };
  const auto count = static_cast<double>(problem.shape.set_size());
  const bool centred = problem.centring != Centring::none;
  const auto range = pass.template each<Range>([](Range& part, T number) {
    const auto value = static_cast<double>(number);
    const double size = std::fabs(value);
    part.largest = size > part.largest ? size : part.largest;
    part.sum += value;
    part.not_finite += value - value == 0 ? 0 : 1;
  });
  const auto sum_of = [&](auto term) {
    return pass.sum(pass.template each<double>([=](double& sum, T value) { sum += term(static_cast<double>(value)); }),
                    [](double sum) { return sum; });
  };
  const double largest = pass.largest(range, [](const Range& part) { return part.largest; });
  const bool finite = pass.sum(range, [](const Range& part) { return part.not_finite; }) == 0;
  const double plain_sum = pass.sum(range, [](const Range& part) { return part.sum; });
  const double scale = scale_of(largest);
  // mean + mean_low = sum(x) / n, in units of 1 / scale; the second round adds what the first lost to rounding
  double mean = 0;
  double mean_low = 0;
  if (centred) {
    mean = sum_of([=](double value) { return value * scale; }) / count;
    mean_low = sum_of([=](double value) { return (value * scale - mean) / count; });
  }
  const double squares = sum_of([=](double value) {
    const double d = (value * scale - mean) - mean_low;
    return d * d;
  });
  if (!finite) {
    constexpr T kNaN = std::numeric_limits<T>::quiet_NaN();
    return centred ? SetStatistics<T>{static_cast<T>(plain_sum / count), T(0), kNaN, kNaN, false} : plain;
  }
  const double var = squares / (centred ? count - static_cast<double>(problem.correction) : count);
  const T rounded = static_cast<T>((mean + mean_low) / scale);
  const T rounded_low = static_cast<T>(((mean - static_cast<double>(rounded) * scale) + mean_low) / scale);
  const T rstd = static_cast<T>(scale / std::hypot(std::sqrt(var), std::sqrt(problem.eps) * scale));
  return {rounded, rounded_low, rstd, static_cast<T>(var / scale / scale), false};
}

// --- what is done with the statistics of a set ----------------------------------------------------------------------

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
NORMA_FORMULA void store_set(const ForwardArrays<S>& arrays, int64_t set, const SetStatistics<T>& of_set) {
  arrays.mean[set] = of_set.mean;
  arrays.mean_low[set] = of_set.mean_low;
  arrays.rstd[set] = of_set.rstd;
  if (arrays.var != nullptr) {
    arrays.var[set] = of_set.var;
  }
}

/// The constants of a set in dx = dz * weight * rstd + xhat * by_xhat + shift.
template <class T>
struct InputGradient {
  T by_xhat = 0;
  T shift = 0;
};

/// The InputGradient of a set from its sums of g and g * xhat, with g = dz * weight, xhat = ((x - mean) - mean_low) *
/// rstd, n elements and correction k:
///   mean:  dx = rstd * (g - sum(g) / n - xhat * sum(g * xhat) / (n - k))
///   none:  dx = rstd * (g - xhat * sum(g * xhat) / n)
///   fixed: dx = rstd * g
///   deviation: dx = rstd * (g - xhat * s / (n - k)), where y = x * rstd has s = sum(g * x * rstd)
///     = sum(g * xhat) + mean * rstd * sum(g)
class InputGradients {
 public:
  constexpr explicit InputGradients(const NormProblem& problem)
      : by_freedom_(1 / static_cast<double>(problem.shape.set_size() - problem.correction)),
        by_count_(problem.centring == Centring::mean ? 1 / static_cast<double>(problem.shape.set_size()) : 0),
        deviation_(problem.centring == Centring::deviation) {}

  template <class T>
  NORMA_FORMULA InputGradient<T> of(double mean, double rstd, double sum_g, double sum_g_xhat) const {
    return {static_cast<T>(by_xhat(mean, rstd, sum_g, sum_g_xhat)), static_cast<T>(shift(rstd, sum_g))};
  }
  [[nodiscard]] NORMA_FORMULA double by_xhat(double mean, double rstd, double sum_g, double sum_g_xhat) const {
    return -rstd * (deviation_ ? sum_g_xhat + mean * rstd * sum_g : sum_g_xhat) * by_freedom_;
  }
  /// 0 where nothing is subtracted, whatever the sum.
  [[nodiscard]] NORMA_FORMULA double shift(double rstd, double sum_g) const {
    return by_count_ == 0 ? 0 : -rstd * sum_g * by_count_;
  }

 private:
  double by_freedom_;
  double by_count_;
  bool deviation_;
};

#undef NORMA_FORMULA

}  // namespace norma::kernels::cpu or norma::kernels::NORMA_BACKEND

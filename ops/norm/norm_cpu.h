#pragma once

#include "core/parallel.h"
#include "ops/norm/kernels.h"
#include "ops/pointwise/vector_math.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

// What the CPU kernels of all walks share: loops over one run of memory, and the arithmetic of statistics.

namespace norma::norm_kernels::cpu {

/// Elements that one chain of T sums may take before it is carried on in double.
inline constexpr int64_t kSumBlock = 4096;
/// Bytes a thread works on at a time so that a second pass finds them in its L2 cache.
inline constexpr int64_t kCacheBytes = 384 * 1024;
/// Partial sums of weight gradients: their number must not depend on the number of threads.
inline constexpr int64_t kMaxPartials = 64;

/// a / b, rounded up.
inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// --- operands of a run: a pointer varies along it, Same does not ------------------------------------------------

template <class T>
struct Same {
  T value;
  T operator[](int64_t) const { return value; }
};

template <class A, class B>
struct Times {
  A a;
  B b;
  auto operator[](int64_t i) const { return a[i] * b[i]; }
};
template <class A, class B>
Times(A, B) -> Times<A, B>;

/// y = ((x - mean) - rest) * scale + shift
template <class T, class Mean, class Rest, class Scale, class Shift>
inline void apply_run(int64_t count, const T* x, T* y, Mean mean, Rest rest, Scale scale, Shift shift) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    y[i] = ((x[i] - mean[i]) - rest[i]) * scale[i] + shift[i];
  }
}

/// dx = dy * by_dy + ((x - mean) - rest) * rstd * by_xhat + shift, or only the first term where the statistics are
/// given. (rstd and by_xhat apart are of the size of dx. Their product need not fit T.)
template <class T, class Mean, class Rest, class Rstd, class ByDy, class ByXhat, class Shift>
inline void input_gradient_run(bool given, int64_t count, const T* dy, const T* x, T* dx, Mean mean, Rest rest,
                               Rstd rstd, ByDy by_dy, ByXhat by_xhat, Shift shift) {
  if (given) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      dx[i] = dy[i] * by_dy[i];
    }
    return;
  }
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    dx[i] = dy[i] * by_dy[i] + ((((x[i] - mean[i]) - rest[i]) * rstd[i]) * by_xhat[i] + shift[i]);
  }
}

/// dweight += dy * xhat, dbias += dy, element by element along the run.
template <class T, class Mean, class Rest, class Rstd>
inline void weight_gradient_run(int64_t count, const T* dy, const T* x, Mean mean, Rest rest, Rstd rstd, T* dweight,
                                T* dbias) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    dweight[i] += dy[i] * (((x[i] - mean[i]) - rest[i]) * rstd[i]);
    dbias[i] += dy[i];
  }
}

/// y = f(y + residual), or y = dy * f'(y + residual), for a run that begins at `offset` and has just been written.
template <class T>
inline void epilogue_run(const Epilogue<T>& epilogue, int64_t offset, int64_t count, T* y) {
  namespace vm = vector_math;
  const auto map = [&](auto value, auto slope) {
    const auto run = [&](auto residual) {
      if (epilogue.dy == nullptr) {
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) {
          y[i] = value(y[i] + residual[i]);
        }
      } else {
        const T* dy = epilogue.dy + offset;
#pragma omp simd
        for (int64_t i = 0; i < count; ++i) {
          y[i] = slope(y[i] + residual[i], dy[i]);
        }
      }
    };
    if (epilogue.residual == nullptr) {
      run(Same<T>{0});
    } else {
      run(epilogue.residual + offset);
    }
  };
  switch (epilogue.activation) {
    case Activation::identity: return map([](T z) { return z; }, [](T, T dy) { return dy; });
    case Activation::relu:
      return map([](T z) { return z <= T(0) ? T(0) : z; }, [](T z, T dy) { return z <= T(0) ? T(0) : dy; });
    case Activation::gelu:
      return map([](T z) { return z * vm::normal(z).distribution; },
                 [](T z, T dy) {
                   const auto normal = vm::normal(z);
                   return dy * (normal.distribution + z * normal.density);
                 });
    case Activation::silu:
      return map([](T z) { return z * vm::sigmoid(z); },
                 [](T z, T dy) {
                   const T s = vm::sigmoid(z);
                   return dy * (s * (T(1) + z * (T(1) - s)));
                 });
  }
}

/// Two sums over a run.
template <class T>
struct Pair {
  T first = 0;
  T second = 0;
};

/// Elements of one register of the widest vector units.
template <class T>
inline constexpr int kLanes = 64 / sizeof(T);

/// The sum of all lanes, by halves. (A reduction clause would add them up one after the other.)
template <class T, int lanes>
inline T add_lanes(T (&sums)[lanes]) {
#pragma GCC unroll 8
  for (int half = lanes / 2; half > 0; half /= 2) {
#pragma omp simd
    for (int lane = 0; lane < half; ++lane) {
      sums[lane] += sums[lane + half];
    }
  }
  return sums[0];
}

/// The sums of term(i).first and term(i).second for i < count. Four terms are added in T, the rest is carried on in
/// double, one sum for each lane.
template <class T, class Term>
[[gnu::always_inline]] inline Pair<double> sum_run(int64_t count, Term term) {
  constexpr int lanes = kLanes<T>;
  double first[lanes] = {};
  double second[lanes] = {};
  int64_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
#pragma omp simd
    for (int lane = 0; lane < lanes; ++lane) {
      const Pair<T> a = term(i + lane);
      const Pair<T> b = term(i + lane + lanes);
      const Pair<T> c = term(i + lane + 2 * lanes);
      const Pair<T> d = term(i + lane + 3 * lanes);
      first[lane] += (a.first + b.first) + (c.first + d.first);
      second[lane] += (a.second + b.second) + (c.second + d.second);
    }
  }
  for (; i + lanes <= count; i += lanes) {
#pragma omp simd
    for (int lane = 0; lane < lanes; ++lane) {
      const Pair<T> t = term(i + lane);
      first[lane] += t.first;
      second[lane] += t.second;
    }
  }
  const int left = static_cast<int>(count - i);
  if (left > 0) {
#pragma omp simd
    for (int lane = 0; lane < lanes; ++lane) {
      const Pair<T> t = lane < left ? term(i + lane) : Pair<T>{};
      first[lane] += t.first;
      second[lane] += t.second;
    }
  }
  return {add_lanes(first), add_lanes(second)};
}

/// (sum of d, sum of d²) with d = x - pivot.
template <class T>
inline Pair<double> shifted_sums(int64_t count, const T* x, T pivot) {
  return sum_run<T>(count, [=](int64_t i) {
    const T d = x[i] - pivot;
    return Pair<T>{d, d * d};
  });
}

/// (sum of g, sum of g * xhat) with g = dy * weight and xhat = ((x - mean) - rest) * rstd.
template <class T, class Weight>
inline Pair<double> gradient_sums(int64_t count, const T* dy, const T* x, T mean, T rest, T rstd, Weight weight) {
  return sum_run<T>(count, [=](int64_t i) {
    const T g = dy[i] * weight[i];
    return Pair<T>{g, g * (((x[i] - mean) - rest) * rstd)};
  });
}

/// gradient_sums of a run of any length.
template <class T, class Weight>
inline Pair<double> long_gradient_sums(int64_t count, const T* dy, const T* x, T mean, T rest, T rstd, Weight weight) {
  Pair<double> sums;
  for (int64_t begin = 0; begin < count; begin += kSumBlock) {
    const int64_t length = std::min(kSumBlock, count - begin);
    Pair<double> part;
    if constexpr (std::is_pointer_v<Weight>) {
      part = gradient_sums(length, dy + begin, x + begin, mean, rest, rstd, weight + begin);
    } else {
      part = gradient_sums(length, dy + begin, x + begin, mean, rest, rstd, weight);
    }
    sums.first += part.first;
    sums.second += part.second;
  }
  return sums;
}

// --- statistics -------------------------------------------------------------------------------------------------

/// Statistics of some of a set's elements: the mean is pivot + rest, m2 the sum of squared differences from it.
/// Raw: pivot is 0, rest the sum of all elements, m2 that of their squares.
struct Moments {
  double pivot = 0;
  double rest = 0;
  double m2 = 0;
};

/// From the sums of d and d² with d = x - pivot.
inline Moments moments_of(bool raw, double count, double pivot, double sum, double square_sum) {
  if (raw) {
    return {0, sum, square_sum};
  }
  const double rest = sum / count;
  return {pivot, rest, std::max(square_sum - sum * rest, 0.0)};
}

/// True iff the pivot was so far from the mean that m2 has lost digits: more than two standard deviations.
inline bool is_far(double count, const Moments& moments) {
  return moments.rest * moments.rest * count > 4 * moments.m2;
}

/// Chan, Golub and LeVeque, 1979: the moments of the union of a (count_a elements) and b (count_b > 0 elements).
inline Moments merge(bool raw, const Moments& a, double count_a, const Moments& b, double count_b) {
  if (raw) {
    return {0, a.rest + b.rest, a.m2 + b.m2};
  }
  const double share = count_b / (count_a + count_b);
  const double delta = (b.pivot - a.pivot) + (b.rest - a.rest);
  return {a.pivot, a.rest + delta * share, a.m2 + b.m2 + delta * delta * (count_a * share)};
}

/// What is known of a set, into the arrays.
template <class T>
inline void store_set(const NormProblem& problem, const NormForward<T>& arrays, int64_t set, T mean, T rest, T rstd,
                      T var) {
  const bool subtracted = problem.centring != Centring::deviation;
  if (!subtracted) {
    arrays.centre[set] = mean;
    arrays.centre_rest[set] = rest;
  }
  arrays.mean[set] = subtracted ? mean : T(0);
  arrays.rest[set] = subtracted ? rest : T(0);
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
/// The statistics of such a set, from its elements multiplied by a power of two, in double. False, with nothing done,
/// where an element is NaN or infinite.
template <class T>
bool store_scaled_statistics(const NormProblem& problem, const NormForward<T>& arrays, int64_t set);

/// Mean, variance and so on of set number `set`, from the moments of all its elements, into the arrays.
template <class T>
inline void store_statistics(const NormProblem& problem, const Moments& moments, const NormForward<T>& arrays,
                             int64_t set) {
  const auto count = static_cast<double>(problem.shape.set_size());
  const double freedom = count - static_cast<double>(problem.correction);
  T mean = 0;
  T rest = 0;
  T var;
  double wide_var;
  if (problem.centring == Centring::none) {
    wide_var = moments.m2 / count;
    var = static_cast<T>(wide_var);
  } else if (problem.statistics == Statistics::sum_of_squares) {
    // E[x²] - E[x]² in T, as asked for; rounding can make it negative.
    mean = static_cast<T>(moments.rest / count);
    const T difference = static_cast<T>(moments.m2 / count) - mean * mean;
    var = (difference < T(0) ? T(0) : difference) * static_cast<T>(count / freedom);
    wide_var = var;
  } else {
    mean = static_cast<T>(moments.pivot + moments.rest);
    rest = static_cast<T>((moments.pivot - static_cast<double>(mean)) + moments.rest);
    wide_var = moments.m2 / freedom;
    var = static_cast<T>(wide_var);
  }
  if (squares_are_lost<T>(problem, wide_var) && store_scaled_statistics(problem, arrays, set)) [[unlikely]] {
    return;
  }
  store_set(problem, arrays, set, mean, rest, static_cast<T>(1 / std::sqrt(wide_var + problem.eps)), var);
}

/// The constants of a set in dx = dy * weight * rstd + d * rstd * by_xhat + shift, with d = (x - mean) - rest, or
/// (x - centre) - centre_rest for Centring::deviation.
struct InputGradient {
  double by_xhat = 0;
  double shift = 0;
};

/// From the sums of g and g * xhat over a set, with g = dy * weight, xhat = ((x - mean) - rest) * rstd, n elements and
/// correction k:
///   mean:      dx = rstd * (g - sum(g) / n - d * rstd * sum(g * xhat) / (n - k))
///   none:      dx = rstd * (g - d * rstd * sum(g * xhat) / n)
///   deviation: dx = rstd * (g - d * rstd * sum(g * xhat) / (n - k))
///   given:     dx = rstd * g
inline InputGradient input_gradient(const NormProblem& problem, double rstd, double sum_g, double sum_g_xhat) {
  const auto count = static_cast<double>(problem.shape.set_size());
  const double freedom = count - static_cast<double>(problem.correction);
  return {-rstd * sum_g_xhat / freedom, problem.centring == Centring::mean ? -rstd * sum_g / count : 0};
}

/// d = (x - first) - second; see InputGradient.
template <class T>
inline Pair<T> centre_of(const NormBackward<T>& arrays, int64_t set) {
  return arrays.centre == nullptr ? Pair<T>{arrays.mean[set], arrays.rest[set]}
                                  : Pair<T>{arrays.centre[set], arrays.centre_rest[set]};
}

/// The mean of the first few elements, exact where all are equal.
template <class T>
inline T mean_of_first(int64_t count, const T* x) {
  const int few = static_cast<int>(std::min<int64_t>(count, kLanes<T>));
  const T first = x[0];
  T sums[kLanes<T>];
#pragma omp simd
  for (int lane = 0; lane < kLanes<T>; ++lane) {
    sums[lane] = lane < few ? x[lane] - first : T(0);
  }
  return first + add_lanes(sums) / static_cast<T>(few);
}

/// Moments of one run, block by block as a block stays in L1. A look at a few elements finds a pivot near the mean. It
/// is a bad one if they are outliers: then the mean it led to is taken.
template <class T>
inline Moments run_moments(bool raw, int64_t count, const T* x) {
  Moments all;
  for (int64_t begin = 0; begin < count; begin += kSumBlock) {
    const int64_t length = std::min(kSumBlock, count - begin);
    const auto elements = static_cast<double>(length);
    const T* block = x + begin;
    T pivot = raw ? T(0) : mean_of_first(length, block);
    Pair<double> sums = shifted_sums(length, block, pivot);
    Moments part = moments_of(raw, elements, pivot, sums.first, sums.second);
    if (!raw && is_far(elements, part)) [[unlikely]] {
      pivot = static_cast<T>(part.pivot + part.rest);
      sums = shifted_sums(length, block, pivot);
      part = moments_of(raw, elements, pivot, sums.first, sums.second);
    }
    all = begin == 0 ? part : merge(raw, all, static_cast<double>(begin), part, elements);
  }
  return all;
}

// --- sums of weight gradients -----------------------------------------------------------------------------------

/// dweight and dbias in parts: each fixed block of work adds to its own, and the parts are added in order at the end,
/// so that the bits do not depend on the number of threads. The parts are of type Sum: double where a weight takes a
/// sum of many elements at a time, T where it takes one after the other along a run.
template <class Sum>
class WeightGradients {
 public:
  /// `wanted`: false makes every function do nothing.
  WeightGradients(bool wanted, int64_t parts, int64_t size)
      : size_(size), parts_(parts), sums_(wanted ? static_cast<size_t>(2 * parts * size) : 0, Sum(0)) {}

  [[nodiscard]] bool wanted() const { return !sums_.empty(); }
  [[nodiscard]] Sum* dweight(int64_t part) { return sums_.data() + 2 * part * size_; }
  [[nodiscard]] Sum* dbias(int64_t part) { return dweight(part) + size_; }

  /// Writes the totals; either pointer may be null.
  template <class T>
  void total(T* dweight_out, T* dbias_out) {
    if (!wanted()) {
      return;
    }
    parallel_for(0, size_, std::max<int64_t>(1, kPointwiseGrain / parts_), [&](int64_t begin, int64_t end) {
      std::vector<double> total(static_cast<size_t>(end - begin));
      const auto write = [&](T* out, int64_t offset) {
        if (out == nullptr) {
          return;
        }
        std::fill(total.begin(), total.end(), 0.0);
        for (int64_t part = 0; part < parts_; ++part) {
          const Sum* sums = dweight(part) + offset + begin;
          for (int64_t i = 0; i < end - begin; ++i) {
            total[static_cast<size_t>(i)] += sums[i];
          }
        }
        for (int64_t i = begin; i < end; ++i) {
          out[i] = static_cast<T>(total[static_cast<size_t>(i - begin)]);
        }
      };
      write(dweight_out, 0);
      write(dbias_out, size_);
    });
  }

 private:
  int64_t size_;
  int64_t parts_;
  std::vector<Sum> sums_;
};

/// The statistics that are computed in passes of their own, before the walk, which then takes them as given:
/// welford, two_pass and compensated.
inline bool has_own_passes(const NormProblem& problem) {
  return !problem.given_statistics && problem.centring != Centring::none &&
         (problem.statistics == Statistics::welford || problem.statistics == Statistics::two_pass ||
          problem.statistics == Statistics::compensated);
}
template <class T>
void own_passes(const NormProblem& problem, const NormForward<T>& arrays);

// The kernels of the three walks.
template <class T>
void rows_forward(const NormProblem& problem, const NormForward<T>& arrays);
template <class T>
void rows_backward(const NormProblem& problem, const NormBackward<T>& arrays);
template <class T>
void columns_forward(const NormProblem& problem, const NormForward<T>& arrays);
template <class T>
void columns_backward(const NormProblem& problem, const NormBackward<T>& arrays);
template <class T>
void groups_forward(const NormProblem& problem, const NormForward<T>& arrays);
template <class T>
void groups_backward(const NormProblem& problem, const NormBackward<T>& arrays);

}  // namespace norma::norm_kernels::cpu

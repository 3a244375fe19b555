// What the walks are made of. First, what exists once: the walks, and the statistics of single sets.

#ifndef NORMA_OPS_NORM_CPU_WALKS
#define NORMA_OPS_NORM_CPU_WALKS

#include "base/error.h"
#include "core/parallel.h"
#include "core/sizes.h"
#include "ops/norm/formulas.h"
#include "ops/norm/kernels.h"

#include <algorithm>
#include <cstdint>

namespace norma::kernels::cpu {

/// The two functions of a walk; a file for each walk defines them.
struct WalkKernels {
  void (*forward)(DType dtype, const NormProblem& problem, const NormPointers& operands);
  void (*backward)(DType dtype, const NormProblem& problem, const NormPointers& operands);
};
WalkKernels rows_walk();
WalkKernels runs_walk();
WalkKernels columns_walk();

/// Bytes a thread works on at a time so that a second pass finds most of them in its L2 cache.
inline constexpr int64_t kCacheBytes = 384 * 1024;

/// The size of the blocks that a second pass takes from the last to the first. Inside a block it goes forwards, since
/// the hardware does not foresee short runs that follow each other backwards.
inline constexpr int64_t kBackwardsBytes = 16 * 1024;

/// True iff results are stored around the caches: large ones, of which the next op would find little in them.
inline bool streams(const NormProblem& problem, int64_t element_bytes) {
  constexpr int64_t kStreamedBytes = int64_t{4} << 20;  // ResNet-50's step gained 3 %, ConvNeXt-T's nothing
  return problem.shape.numel() * element_bytes >= kStreamedBytes;
}

/// Calls f(first, last) for the blocks of [begin, end), the last one first.
template <class F>
void for_each_block_from_the_end(int64_t begin, int64_t end, int64_t block, F&& f) {
  for (int64_t last = end; last > begin; last -= block) {
    f(std::max(begin, last - block), last);
  }
}

/// Two sums.
template <class T>
struct Pair {
  T first = {};
  T second = {};
};

/// Replaces the stored statistics of a set by scaled_statistics(), where the set has any.
template <class S>
void store_scaled_statistics(const NormProblem& problem, const ForwardArrays<S>& arrays, int64_t set);

/// Stores mean, variance and so on of set number `set`, from the moments of all its elements.
template <class S>
inline void store_statistics(const NormProblem& problem, const Moments& moments, const ForwardArrays<S>& arrays,
                             int64_t set) {
  const auto of_set = statistics_of<compute_t<S>>(problem, moments);
  store_set(arrays, set, of_set);
  if (of_set.lost) [[unlikely]] {
    store_scaled_statistics(problem, arrays, set);
  }
}

}  // namespace norma::kernels::cpu

#endif

// Then, what is compiled for each target (core/simd/targets.h): loops over a run of memory, the statistics of
// neighbouring sets, and sums of weight gradients.
#if defined(NORMA_OPS_NORM_CPU_LOOPS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_OPS_NORM_CPU_LOOPS_H
#undef NORMA_OPS_NORM_CPU_LOOPS_H
#else
#define NORMA_OPS_NORM_CPU_LOOPS_H
#endif

#include "core/cpu/scratch.h"
#include "core/simd/math.h"
#include "core/simd/sums.h"
#include "core/simd/targets.h"

#include <hwy/highway.h>

#include <cmath>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

using namespace simd::HWY_NAMESPACE;

/// The kernels of a walk, from lambdas that call its loops with the arrays of a dtype.
template <class Forward, class Backward>
WalkKernels walk_of(Forward, Backward) {
  return {[](DType dtype, const NormProblem& problem, const NormPointers& operands) HWY_ATTR {
            dispatch_any_floating("normalize", dtype, [&](auto s) HWY_ATTR {
              Forward{}(problem, ForwardArrays<decltype(s)>(problem, operands));
            });
          },
          [](DType dtype, const NormProblem& problem, const NormPointers& operands) HWY_ATTR {
            dispatch_any_floating("normalize", dtype, [&](auto s) HWY_ATTR {
              Backward{}(problem, BackwardArrays<decltype(s)>(problem, operands));
            });
          }};
}

// --- statistics of neighbouring sets, side by side ------------------------------------------------------------------

/// store_statistics() of neighbouring sets from the sums of d and d² over each, with d = x - pivot.
template <class S, class T = compute_t<S>>
inline void store_sets(const NormProblem& problem, const ForwardArrays<S>& arrays, int64_t first_set, int64_t sets,
                       const T* pivot, const double* sum, const double* squares) {
  const auto count = static_cast<double>(problem.shape.set_size());
  if (problem.centring == Centring::mean && problem.statistics == Statistics::sum_of_squares) {
    for (int64_t i = 0; i < sets; ++i) {
      store_statistics(problem, {0, sum[i], squares[i]}, arrays, first_set + i);
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

// --- loops over one run of memory -----------------------------------------------------------------------------------

/// Vectors that one chain of sums in T may take before it is moved to double.
inline constexpr int64_t kChain = 32;

/// (x - mean) - mean_low. 16 bits are too few for mean_low to matter: there it is neither loaded nor subtracted.
template <class S, class Mean, class MeanLow, class Part>
HWY_INLINE Lanes<compute_t<S>> difference(const S* x, int64_t i, Part part, Mean mean, MeanLow mean_low) {
  if constexpr (sizeof(S) == 2) {
    return load(x + i, part) - mean.get(i, part);
  } else {
    return (load(x + i, part) - mean.get(i, part)) - mean_low.get(i, part);
  }
}

/// Prefetches the next run while one is written: memory can do both at a time.
template <class S>
struct Fetch {
  const S* numbers;
  HWY_INLINE void operator()(int64_t i) const { __builtin_prefetch(numbers + i); }
};
struct FetchNothing {
  HWY_INLINE void operator()(int64_t) const {}
};

/// y = ((x - mean) - mean_low) * scale + shift. `out` stores y.
template <class S, class O, class Mean, class MeanLow, class Scale, class Shift, class Out, class Next = FetchNothing>
inline void apply_run(int64_t count, const S* x, O* y, Mean mean, MeanLow mean_low, Scale scale, Shift shift,
                      const Out& out, Next next = {}) {
  for_each_lanes<compute_t<S>>(count, [&](int64_t i, auto part) NORMA_INLINE {
    next(i);
    out(y + i, multiply_add(difference(x, i, part, mean, mean_low), scale.get(i, part), shift.get(i, part)), part);
  });
}

/// dx = dz * by_dz, for fixed statistics.
template <class Dz, class S, class ByDz>
inline void fixed_gradient_run(int64_t count, Dz dz, S* dx, ByDz by_dz, const StreamingStore& out) {
  for_each_lanes<compute_t<S>>(
      count, [&](int64_t i, auto part) NORMA_INLINE { out(dx + i, dz.get(i, part) * by_dz.get(i, part), part); });
}

/// dx = dz * by_dz + ((x - mean) - mean_low) * rstd * by_xhat + shift, or only the first term if the statistics are
/// fixed. (rstd and by_xhat one by one have the size of dx; their product need not fit T.)
template <class Dz, class S, class Mean, class MeanLow, class Rstd, class ByDz, class ByXhat, class Shift>
inline void input_gradient_run(bool fixed_stats, int64_t count, Dz dz, const S* x, S* dx, Mean mean, MeanLow mean_low,
                               Rstd rstd, ByDz by_dz, ByXhat by_xhat, Shift shift, const StreamingStore& out) {
  if (fixed_stats) {
    return fixed_gradient_run(count, dz, dx, by_dz, out);
  }
  for_each_lanes<compute_t<S>>(count, [&](int64_t i, auto part) NORMA_INLINE {
    const auto xhat = difference(x, i, part, mean, mean_low) * rstd.get(i, part);
    const auto of_statistics = multiply_add(xhat, by_xhat.get(i, part), shift.get(i, part));
    out(dx + i, multiply_add(dz.get(i, part), by_dz.get(i, part), of_statistics), part);
  });
}

/// A vector of elements adds `first` to one sum, and left * right to another.
template <class T>
struct Addends {
  Lanes<T> first;
  Lanes<T> left;
  Lanes<T> right;
  template <class Part>
  HWY_INLINE void add_to(Pair<Lanes<T>>& sums, Part part) const {
    sums.first += keep(first, part);
    sums.second = multiply_add(keep(left, part), keep(right, part), sums.second);
  }
};

/// The elements from which on a run has several chains of sums, which take longer to begin and to end.
template <class T>
inline constexpr int64_t kShort = 8 * kLanes<T>;

/// The sums of sum_run() for fewer than kShort elements.
template <class T, class Term>
HWY_INLINE Pair<double> sum_short_run(int64_t count, Term term) {
  Pair<Lanes<T>> chain = {};
  for_each_lanes<T>(count, [&](int64_t i, auto part) NORMA_INLINE { term(i, part).add_to(chain, part); });
  const TwoSums sums = add_lanes(chain.first, chain.second);
  return {sums.first, sums.second};
}

/// The sums of the Addends that term(i, part) gives for a run: in T over kChain vectors in four chains, then in double.
template <class T, class Term>
HWY_INLINE Pair<double> sum_run(int64_t count, Term term) {
  constexpr int64_t lanes = kLanes<T>;
  if (count < kShort<T>) {
    return sum_short_run<T>(count, term);
  }
  Pair<double> total;
  int64_t i = 0;
  do {
    const int64_t end = std::min(count, i + 4 * kChain * lanes);
    Pair<Lanes<T>> chain[4] = {};
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
#pragma GCC unroll 4
      for (int c = 0; c < 4; ++c) {
        term(i + c * lanes, Whole{}).add_to(chain[c], Whole{});
      }
    }
    for (; i + lanes <= end; i += lanes) {
      term(i, Whole{}).add_to(chain[0], Whole{});
    }
    if (i < end) {
      const First part{static_cast<int>(end - i)};
      term(i, part).add_to(chain[1], part);
      i = end;
    }
    const TwoSums part = add_lanes((chain[0].first + chain[1].first) + (chain[2].first + chain[3].first),
                                   (chain[0].second + chain[1].second) + (chain[2].second + chain[3].second));
    total.first += part.first;
    total.second += part.second;
  } while (i < count);
  return total;
}

/// (sum of d, sum of d²) with d = x - pivot.
template <class S, class T = compute_t<S>>
inline Pair<double> shifted_sums(int64_t count, const S* x, T pivot) {
  return sum_run<T>(count, [=](int64_t i, auto part) NORMA_INLINE {
    const Lanes<T> d = load(x + i, part) - pivot;
    return Addends<T>{d, d, d};
  });
}

/// (sum of g, sum of g * xhat) with g = dz * weight and xhat = ((x - mean) - mean_low) * rstd.
template <class Dz, class S, class Weight, class T = compute_t<S>>
inline Pair<double> gradient_sums(int64_t count, Dz dz, const S* x, T mean, T mean_low, T rstd, Weight weight) {
  return sum_run<T>(count, [=](int64_t i, auto part) NORMA_INLINE {
    const Lanes<T> g = dz.get(i, part) * weight.get(i, part);
    return Addends<T>{g, g, difference(x, i, part, Same<T>{mean}, Same<T>{mean_low}) * rstd};
  });
}
/// The Addends of (sum of dz, sum of dz * xhat).
template <class Dz, class S, class T = compute_t<S>>
struct GradientTerm {
  Dz dz;
  const S* x;
  T mean;
  T mean_low;
  T rstd;
  template <class Part>
  HWY_INLINE Addends<T> operator()(int64_t i, Part part) const {
    const Lanes<T> g = dz.get(i, part);
    return {g, g, difference(x, i, part, Same<T>{mean}, Same<T>{mean_low}) * rstd};
  }
};
template <class Dz, class S, class T = compute_t<S>>
inline Pair<double> gradient_sums(int64_t count, Dz dz, const S* x, T mean, T mean_low, T rstd) {
  return sum_run<T>(count, GradientTerm<Dz, S>{dz, x, mean, mean_low, rstd});
}

/// The mean of the first few elements, exact where all are equal.
template <class S, class T = compute_t<S>>
inline T mean_of_first(int64_t count, const S* x) {
  const T first = static_cast<T>(x[0]);
  if (count >= kLanes<T>) {
    return first + static_cast<T>(add_lanes(load(x, Whole{}) - first)) / static_cast<T>(kLanes<T>);
  }
  const First part{static_cast<int>(count)};
  return first + static_cast<T>(add_lanes(keep(load(x, part) - first, part))) / static_cast<T>(count);
}

// --- what follows the norm ------------------------------------------------------------------------------------------

namespace detail {

/// Loads `count` <= 16 bits from bit number `at` on, and touches no byte behind them.
inline uint32_t load_bits(const uint8_t* bits, int64_t at, int count) {
  const uint8_t* from = bits + at / 8;
  const auto shift = static_cast<int>(at % 8);
  if (shift == 0 && count == 16) {
    uint16_t word;
    std::memcpy(&word, from, sizeof(word));
    return word;
  }
  const int bytes = (shift + count + 7) / 8;
  uint32_t word = from[0];
  word |= bytes > 1 ? static_cast<uint32_t>(from[1]) << 8 : 0U;
  word |= bytes > 2 ? static_cast<uint32_t>(from[2]) << 16 : 0U;
  return word >> shift;
}

/// Stores bits i, i + 1, … of a run: 1 where the lane of `negative` is not set.
template <class T, class Part>
HWY_INLINE void store_bits(uint8_t* bits, int64_t i, const Mask<T>& negative, Part part) {
  const uint32_t word = ~bits_of<T>(negative);
  if constexpr (std::is_same_v<Part, Whole>) {
    std::memcpy(bits + i / 8, &word, kLanes<T> / 8);
  } else {
    const uint32_t some = word & ((1U << part.count) - 1U);
    std::memcpy(bits + i / 8, &some, static_cast<size_t>(part.count + 7) / 8);
  }
}

/// z = f(z)
template <class T, class F>
HWY_INLINE void replace_run(int64_t count, T* z, F f) {
  for_each_lanes<T>(count, [&](int64_t i, auto part) NORMA_INLINE { store(z + i, f(load(z + i, part)), part); });
}

// Not inlined: the loops around them stay short.

template <class T>
HWY_NOINLINE void gelu(int64_t count, T* z) {
  replace_run(count, z, [](const Lanes<T>& v) HWY_ATTR { return v * normal(v).distribution; });
}
template <class T>
HWY_NOINLINE void gelu_slope(int64_t count, T* z) {
  replace_run(count, z, [](const Lanes<T>& v) HWY_ATTR {
    const Normal<T> at = normal(v);
    return at.distribution + v * at.density;
  });
}
template <class T>
HWY_NOINLINE void silu(int64_t count, T* z) {
  replace_run(count, z, [](const Lanes<T>& v) HWY_ATTR { return v * sigmoid(v); });
}
template <class T>
HWY_NOINLINE void silu_slope(int64_t count, T* z) {
  replace_run(count, z, [](const Lanes<T>& v) HWY_ATTR {
    const Lanes<T> s = sigmoid(v);
    return s * (T(1) + v * (T(1) - s));
  });
}

/// Throws Error unless the loops below compute this activation: one that is added elsewhere alone must not become
/// another one here.
inline void check_activation(bool known, Activation activation) {
  check(known, "normalize", "activation: expected one that the CPU's loops compute, got {}", to_string(activation));
}

}  // namespace detail

/// to = from, as S.
template <class S, class Out = CachedStore, class T = compute_t<S>>
inline void store_run(int64_t count, const T* from, S* to, const Out& out = {}) {
  for_each_lanes<T>(count, [&](int64_t i, auto part) NORMA_INLINE { out(to + i, load(from + i, part), part); });
}

/// to += from
template <class S, class T = compute_t<S>>
inline void add_run(int64_t count, const S* from, T* to) {
  for_each_lanes<T>(count, [&](int64_t i, auto part)
                               NORMA_INLINE { store(to + i, load(to + i, part) + load(from + i, part), part); });
}

/// y = f(z + residual) with z = ((x - mean) - mean_low) * scale + shift. `scratch`: room for z. The bits of the run
/// begin at `bits`, if it is not null.
template <class S, class Mean, class MeanLow, class Scale, class Shift, class Next = FetchNothing,
          class T = compute_t<S>>
inline void activate_run(Activation activation, int64_t count, const S* x, const S* residual, S* y, uint8_t* bits,
                         T* scratch, Mean mean, MeanLow mean_low, Scale scale, Shift shift, const StreamingStore& out,
                         Next next = {}) {
  if (activation == Activation::relu) {
    const auto relu = [&](auto add) {
      for_each_lanes<T>(count, [&](int64_t i, auto part) NORMA_INLINE {
        next(i);
        const Lanes<T> z =
            add(multiply_add(difference(x, i, part, mean, mean_low), scale.get(i, part), shift.get(i, part)), i, part);
        const Mask<T> negative = z <= broadcast(T(0));
        out(y + i, zero_where(negative, z), part);
        if (bits != nullptr) {
          detail::store_bits<T>(bits, i, negative, part);
        }
      });
    };
    residual == nullptr
        ? relu([](Lanes<T> z, int64_t, auto) NORMA_INLINE { return z; })
        : relu([=](Lanes<T> z, int64_t i, auto part) NORMA_INLINE { return z + load(residual + i, part); });
    return;
  }
  apply_run(count, x, scratch, mean, mean_low, scale, shift, CachedStore{}, next);
  if (residual != nullptr) {
    add_run(count, residual, scratch);
  }
  if (activation == Activation::gelu) {
    detail::gelu(count, scratch);
  } else if (activation == Activation::silu) {
    detail::silu(count, scratch);
  } else {
    detail::check_activation(activation == Activation::identity, activation);
  }
  store_run(count, scratch, y, out);
}

/// dz = dy * f'(z + residual), with z as above.
template <class S, class Mean, class MeanLow, class Scale, class Shift, class T = compute_t<S>>
inline void slope_run(Activation activation, int64_t count, const S* x, const S* residual, const S* dy, T* dz,
                      Mean mean, MeanLow mean_low, Scale scale, Shift shift) {
  if (activation == Activation::relu && residual == nullptr) {
    for_each_lanes<T>(count, [&](int64_t i, auto part) NORMA_INLINE {
      const Lanes<T> z = multiply_add(difference(x, i, part, mean, mean_low), scale.get(i, part), shift.get(i, part));
      store(dz + i, zero_where(z <= broadcast(T(0)), load(dy + i, part)), part);
    });
    return;
  }
  apply_run(count, x, dz, mean, mean_low, scale, shift, CachedStore{});
  if (residual != nullptr) {
    add_run(count, residual, dz);
  }
  if (activation == Activation::relu) {
    for_each_lanes<T>(count, [&](int64_t i, auto part) NORMA_INLINE {
      store(dz + i, zero_where(load(dz + i, part) <= broadcast(T(0)), load(dy + i, part)), part);
    });
    return;
  }
  if (activation == Activation::gelu) {
    detail::gelu_slope(count, dz);
  } else {
    detail::check_activation(activation == Activation::silu, activation);
    detail::silu_slope(count, dz);
  }
  for_each_lanes<T>(
      count, [&](int64_t i, auto part) NORMA_INLINE { store(dz + i, load(dy + i, part) * load(dz + i, part), part); });
}

// --- dz, the gradient of the norm itself: operands of a run, computed where they are needed -------------------------

/// True iff no operand below computes dz, so that it needs room of its own: behind relu, z is computed again, or its
/// bits are there.
template <class S>
bool computes_dz_apart(const BackwardArrays<S>& arrays) {
  return arrays.activation != Activation::identity && arrays.bits == nullptr &&
         !(arrays.activation == Activation::relu && arrays.residual == nullptr && arrays.dresidual == nullptr);
}

/// dz lies in memory.
template <class D>
struct Given {
  const D* dz;
  template <class Part>
  HWY_INLINE Lanes<compute_t<D>> get(int64_t i, Part part) const {
    return load(dz + i, part);
  }
  [[nodiscard]] HWY_INLINE Given ahead(int64_t n) const { return {dz + n}; }
};

/// dz = bit ? dy : 0. The run begins with bit number `at`.
template <class S>
struct WhereBits {
  const S* dy;
  const uint8_t* bits;
  int64_t at;
  template <class Part>
  HWY_INLINE Lanes<compute_t<S>> get(int64_t i, Part part) const {
    int lanes = kLanes<compute_t<S>>;
    if constexpr (std::is_same_v<Part, First>) {
      lanes = part.count;
    }
    return where_bits(detail::load_bits(bits, at + i, lanes), load(dy + i, part));
  }
  [[nodiscard]] HWY_INLINE WhereBits ahead(int64_t n) const { return {dy + n, bits, at + n}; }
};

/// dz = z <= 0 ? 0 : dy with z = ((x - mean) - mean_low) * scale + shift, in the bits of apply_run().
template <class S, class Mean, class MeanLow, class Scale, class Shift>
struct WherePositive {
  const S* dy;
  const S* x;
  Mean mean;
  MeanLow mean_low;
  Scale scale;
  Shift shift;
  template <class Part>
  HWY_INLINE Lanes<compute_t<S>> get(int64_t i, Part part) const {
    const auto z = multiply_add(difference(x, i, part, mean, mean_low), scale.get(i, part), shift.get(i, part));
    return zero_where(z <= broadcast(compute_t<S>(0)), load(dy + i, part));
  }
  /// The constants stay as they are.
  [[nodiscard]] HWY_INLINE WherePositive ahead(int64_t n) const {
    return {dy + n, x + n, mean, mean_low, scale, shift};
  }
};

/// dz, which is stored at `to`, too.
template <class Dz, class S>
struct AndStored {
  Dz dz;
  S* to;
  template <class Part>
  HWY_INLINE auto get(int64_t i, Part part) const {
    const auto value = dz.get(i, part);
    store(to + i, value, part);
    return value;
  }
};

/// to = dz
template <class Dz, class S>
inline void store_gradient_run(int64_t count, Dz dz, S* to) {
  for_each_lanes<compute_t<S>>(count, [&](int64_t i, auto part) NORMA_INLINE { store(to + i, dz.get(i, part), part); });
}

// --- sums of weight gradients ---------------------------------------------------------------------------------------

/// The number of parts must not depend on the number of threads.
inline constexpr int64_t kMaxPartials = 64;

/// dweight and dbias in parts: each fixed block of work adds to its own part, and the parts are added in order at the
/// end, so that the bits do not depend on the number of threads.
class WeightGradients {
 public:
  /// `wanted`: if false, every function does nothing.
  WeightGradients(Scratch& scratch, bool wanted, int64_t parts, int64_t size)
      : size_(size), parts_(parts), sums_(wanted ? scratch.zeros<double>(2 * parts * size) : nullptr) {}

  [[nodiscard]] bool wanted() const { return sums_ != nullptr; }
  /// Null where gradients are not wanted.
  [[nodiscard]] double* dweight(int64_t part) const { return wanted() ? sums_ + 2 * part * size_ : nullptr; }
  [[nodiscard]] double* dbias(int64_t part) const { return wanted() ? dweight(part) + size_ : nullptr; }

  /// Writes the totals; either pointer may be null.
  template <class T>
  void total(T* dweight_out, T* dbias_out) const {
    if (!wanted()) {
      return;
    }
    parallel_for(0, size_, std::max<int64_t>(1, kPointwiseGrain / parts_), [&](int64_t begin, int64_t end) {
      Scratch scratch;
      double* total = scratch.take<double>(end - begin);
      const auto write = [&](T* out, int64_t offset) {
        if (out == nullptr) {
          return;
        }
        std::fill_n(total, end - begin, 0.0);
        for (int64_t part = 0; part < parts_; ++part) {
          const double* sums = dweight(part) + offset + begin;
          for (int64_t i = 0; i < end - begin; ++i) {
            total[i] += sums[i];
          }
        }
        for (int64_t i = begin; i < end; ++i) {
          out[i] = static_cast<T>(total[i - begin]);
        }
      };
      write(dweight_out, 0);
      write(dbias_out, size_);
    });
  }

 private:
  int64_t size_;
  int64_t parts_;
  double* sums_;
};

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#pragma once

#include "core/parallel.h"
#include "core/sizes.h"
#include "ops/norm/kernels.h"
#include "ops/norm/statistics.h"

#include <algorithm>
#include <cstdint>

// The CPU kernels of the norms, and what the walks share.

namespace norma::kernels::cpu {

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

/// Welford, two_pass and compensated take passes of their own; the walk that follows finds the stats fixed.
inline bool is_textbook(const NormProblem& problem) {
  return !problem.fixed_stats && problem.centring != Centring::none &&
         (problem.statistics == Statistics::welford || problem.statistics == Statistics::two_pass ||
          problem.statistics == Statistics::compensated);
}
template <class S>
void textbook_statistics(const NormProblem& problem, const ForwardArrays<S>& arrays);

void rows_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays);
void rows_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays);
void runs_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays);
void runs_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays);
void columns_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays);
void columns_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays);

// --- statistics
// --------------------------------------------------------------------------------------------------------

/// Two sums.
template <class T>
struct Pair {
  T first = {};
  T second = {};
};

/// The moments of a set from its sums of d and d² with d = x - pivot.
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

/// Stores the statistics of a set whose squares have left the range of T. Computes them in double from its elements
/// multiplied by a power of two. If an element is NaN or infinite, the mean is the plain one, infinite or NaN, and the
/// variance is NaN; without centring this then does nothing and returns false.
template <class S>
bool store_scaled_statistics(const NormProblem& problem, const ForwardArrays<S>& arrays, int64_t set);

/// Stores mean, variance and so on of set number `set`, from the moments of all its elements.
template <class S>
inline void store_statistics(const NormProblem& problem, const Moments& moments, const ForwardArrays<S>& arrays,
                             int64_t set) {
  const auto of_set = statistics_of<compute_t<S>>(problem, moments);
  if (!of_set.lost || !store_scaled_statistics(problem, arrays, set)) [[likely]] {
    store_set(problem, arrays, set, of_set);
  }
}

/// d = (x - first) - second; see InputGradient.
template <class S, class T = compute_t<S>>
inline Pair<T> centre_of(const BackwardArrays<S>& arrays, int64_t set) {
  return arrays.centre == nullptr ? Pair<T>{arrays.mean[set], arrays.mean_low[set]}
                                  : Pair<T>{arrays.centre[set], arrays.centre_low[set]};
}

}  // namespace norma::kernels::cpu

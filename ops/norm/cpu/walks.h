#pragma once

#include "core/parallel.h"
#include "ops/norm/kernels.h"

#include <algorithm>
#include <cstdint>

// The CPU kernels of the walks.

namespace norma::norm_kernels::cpu {

/// Bytes a thread works on at a time so that a second pass finds most of them in its L2 cache.
inline constexpr int64_t kCacheBytes = 384 * 1024;

/// Bytes in which a second pass goes backwards. Inside them it goes forwards: the hardware does not foresee short runs
/// that follow each other backwards.
inline constexpr int64_t kBackwardsBytes = 16 * 1024;

/// a / b, rounded up.
inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/// Calls f(first, last) for the blocks of [begin, end), the last one first.
template <class F>
void for_each_block_from_the_end(int64_t begin, int64_t end, int64_t block, F&& f) {
  for (int64_t last = end; last > begin; last -= block) {
    f(std::max(begin, last - block), last);
  }
}

/// The loops that a walk comes to.
enum class Loops {
  rows,     ///< a set is one run of memory whose weights vary from element to element
  runs,     ///< a set is runs of memory with one weight each
  columns,  ///< neighbouring elements belong to different sets, or to few of the same
};
Loops loops_of(const NormProblem& problem);

/// The statistics that are computed in passes of their own, before the walk, which then takes them as given:
/// welford, two_pass and compensated.
inline bool has_own_passes(const NormProblem& problem) {
  return !problem.given_statistics && problem.centring != Centring::none &&
         (problem.statistics == Statistics::welford || problem.statistics == Statistics::two_pass ||
          problem.statistics == Statistics::compensated);
}
template <class S>
void own_passes(const NormProblem& problem, const NormForward<S>& arrays);

template <class S>
void rows_forward(const NormProblem& problem, const NormForward<S>& arrays);
template <class S>
void rows_backward(const NormProblem& problem, const NormBackward<S>& arrays);
template <class S>
void runs_forward(const NormProblem& problem, const NormForward<S>& arrays);
template <class S>
void runs_backward(const NormProblem& problem, const NormBackward<S>& arrays);
template <class S>
void columns_forward(const NormProblem& problem, const NormForward<S>& arrays);
template <class S>
void columns_backward(const NormProblem& problem, const NormBackward<S>& arrays);

}  // namespace norma::norm_kernels::cpu

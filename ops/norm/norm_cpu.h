#pragma once

#include "core/parallel.h"
#include "ops/norm/kernels.h"

#include <cstdint>

// The CPU kernels of the walks.

namespace norma::norm_kernels::cpu {

/// Bytes a thread works on at a time so that a second pass finds most of them in its L2 cache.
inline constexpr int64_t kCacheBytes = 384 * 1024;

/// a / b, rounded up.
inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
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

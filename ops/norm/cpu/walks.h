#pragma once

#include "core/parallel.h"
#include "core/sizes.h"
#include "ops/norm/kernels.h"

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
void textbook_statistics(const NormProblem& problem, const NormArrays<S>& arrays);

void rows_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays);
void rows_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays);
void runs_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays);
void runs_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays);
void columns_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays);
void columns_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays);

// The other kernels of NormKernels.
void positive_bits(DType dtype, int64_t count, const void* y, uint8_t* bits);
void mask_by_bits(DType dtype, int64_t count, const uint8_t* bits, const void* dy, void* dz);
void rstd_of(DType dtype, int64_t count, const double* var, double eps, void* rstd);
void power_of_two(DType dtype, int64_t count, const void* rstd, void* scale);
void update_running(int64_t count, const double* running, const double* batch, double momentum, double factor,
                    double* result);
void renorm(DType dtype, int64_t count, const RenormCorrection& arrays);

}  // namespace norma::kernels::cpu

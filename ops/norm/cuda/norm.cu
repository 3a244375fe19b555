#include "ops/norm/cuda/any_backward.h"
#include "ops/norm/cuda/pixels.h"
#include "ops/norm/cuda/running_statistics.h"
#include "ops/norm/cuda/walks.h"

namespace norma::kernels::NORMA_BACKEND {

void norm_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  NormProblem rest = problem;
  // Welford, two_pass and compensated take passes of their own; the kernels that follow find the stats fixed.
  const bool textbook = !problem.fixed_stats && !problem.raw_sums() && problem.statistics != Statistics::stable;
  if (textbook) {
    dispatch_any_floating("normalize", dtype,
                          [&](auto s) { compute_any_statistics(problem, NormArrays<decltype(s)>(problem, arrays)); });
    rest.fixed_stats = true;
  }
  if ((rest.fixed_stats && arrays.y == nullptr) || rows_forward(dtype, rest, arrays) ||
      pixels_forward(dtype, rest, arrays) || runs_forward(dtype, rest, arrays) ||
      columns_forward(dtype, rest, arrays)) {
    return;
  }
  dispatch_any_floating("normalize", dtype, [&](auto s) {
    const NormArrays<decltype(s)> typed(rest, arrays);
    if (!rest.fixed_stats) {
      compute_any_statistics(rest, typed);
    }
    if (arrays.y != nullptr) {
      apply_any(rest, typed);
    }
  });
}

void norm_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  if (rows_backward(dtype, problem, arrays) || pixels_backward(dtype, problem, arrays) ||
      runs_backward(dtype, problem, arrays) || columns_backward(dtype, problem, arrays)) {
    return;
  }
  dispatch_any_floating("normalize", dtype,
                        [&](auto s) { any_backward(problem, NormArrays<decltype(s)>(problem, arrays)); });
}

/// Pixels write no bits: a pass over y that does takes a quarter of the time of the kernels for any case, which could.
bool can_write_bits(const NormProblem& problem) {
  return !are_pixels(problem);
}

}  // namespace norma::kernels::NORMA_BACKEND

namespace norma::kernels {

using namespace NORMA_BACKEND;

constinit const NormKernels NORMA_TABLE(norm){.forward = norm_forward,
                                              .backward = norm_backward,
                                              .can_write_bits = can_write_bits,
                                              .positive_bits = positive_bits,
                                              .mask_by_bits = mask_by_bits,
                                              .rstd = rstd_of,
                                              .power_of_two = power_of_two,
                                              .update_running = update_running,
                                              .renorm = renorm};

}  // namespace norma::kernels

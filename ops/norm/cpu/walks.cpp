#include "ops/norm/cpu/walks.h"

#include "core/half.h"

// The table of the norms' CPU kernels, and which loops a walk comes to.

namespace norma::kernels {

namespace cpu {

Loops loops_of(const NormProblem& problem) {
  /// Runs shorter than this are walked as columns.
  constexpr int64_t kLongRun = 64;
  const AffineShape& affine = problem.affine;
  switch (problem.walk) {
    case Walk::rows: return affine.present && affine.segment == 1 ? Loops::rows : Loops::runs;
    case Walk::columns: return Loops::columns;
    case Walk::groups: break;
  }
  const bool by_run = affine.present && affine.reduce_outer > 1 && affine.kept > 1;
  const int64_t long_run = by_run ? kShortestWeightedRun : kLongRun;
  return affine.inner == 1 && problem.shape.reduce_inner >= long_run ? Loops::runs : Loops::columns;
}

namespace {

bool can_write_bits(const NormProblem& problem) {
  // Threads must not share a byte: what begins anywhere in the loops begins at a multiple of eight elements.
  const NormShape& shape = problem.shape;
  switch (loops_of(problem)) {
    case Loops::rows: return shape.reduce_inner % 8 == 0;
    case Loops::runs: return (problem.walk == Walk::rows ? problem.affine.segment : shape.reduce_inner) % 8 == 0;
    case Loops::columns: return shape.kept * shape.reduce_inner % 8 == 0;
  }
  return false;
}

void forward(DType dtype, const NormProblem& wanted, const NormForward& arrays) {
  NormProblem problem = wanted;
  if (is_textbook(problem)) {
    dispatch_any_floating("normalize", dtype,
                          [&](auto s) { textbook_statistics(problem, ForwardArrays<decltype(s)>(problem, arrays)); });
    problem.fixed_stats = true;
  }
  if (problem.fixed_stats && arrays.y == nullptr) {
    return;
  }
  switch (loops_of(problem)) {
    case Loops::rows: return rows_forward(dtype, problem, arrays);
    case Loops::runs: return runs_forward(dtype, problem, arrays);
    case Loops::columns: return columns_forward(dtype, problem, arrays);
  }
}

void backward(DType dtype, const NormProblem& problem, const NormBackward& arrays) {
  switch (loops_of(problem)) {
    case Loops::rows: return rows_backward(dtype, problem, arrays);
    case Loops::runs: return runs_backward(dtype, problem, arrays);
    case Loops::columns: return columns_backward(dtype, problem, arrays);
  }
}

}  // namespace

}  // namespace cpu

constinit const NormKernels norm_cpu{.forward = cpu::forward,
                                     .backward = cpu::backward,
                                     .can_write_bits = cpu::can_write_bits,
                                     .positive_bits = cpu::positive_bits,
                                     .mask_by_bits = cpu::mask_by_bits,
                                     .rstd = cpu::rstd_of,
                                     .power_of_two = cpu::power_of_two,
                                     .update_running = cpu::update_running,
                                     .renorm = cpu::renorm};

}  // namespace norma::kernels

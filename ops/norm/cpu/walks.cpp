#include "ops/norm/cpu/walks.h"

#include "core/half.h"

namespace norma::norm_kernels::cpu {

Loops loops_of(const NormProblem& problem) {
  /// Runs shorter than this are walked as columns.
  constexpr int64_t kLongRun = 64;
  const AffineShape& affine = problem.affine;
  switch (problem.walk) {
    case Walk::rows: return affine.present && affine.segment == 1 ? Loops::rows : Loops::runs;
    case Walk::columns: return Loops::columns;
    case Walk::groups: break;
  }
  return affine.inner == 1 && problem.shape.reduce_inner >= kLongRun ? Loops::runs : Loops::columns;
}

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

template <class S>
void norm_forward(const NormProblem& problem, const NormForward<S>& arrays) {
  NormProblem rest = problem;
  if (has_own_passes(problem)) {
    own_passes(problem, arrays);
    rest.given_statistics = true;
  }
  if (rest.given_statistics && arrays.y == nullptr) {
    return;
  }
  switch (loops_of(rest)) {
    case Loops::rows: return rows_forward(rest, arrays);
    case Loops::runs: return runs_forward(rest, arrays);
    case Loops::columns: return columns_forward(rest, arrays);
  }
}

template <class S>
void norm_backward(const NormProblem& problem, const NormBackward<S>& arrays) {
  switch (loops_of(problem)) {
    case Loops::rows: return rows_backward(problem, arrays);
    case Loops::runs: return runs_backward(problem, arrays);
    case Loops::columns: return columns_backward(problem, arrays);
  }
}

template void norm_forward(const NormProblem&, const NormForward<float>&);
template void norm_forward(const NormProblem&, const NormForward<double>&);
template void norm_forward(const NormProblem&, const NormForward<bfloat16>&);
template void norm_forward(const NormProblem&, const NormForward<float16>&);
template void norm_backward(const NormProblem&, const NormBackward<float>&);
template void norm_backward(const NormProblem&, const NormBackward<double>&);
template void norm_backward(const NormProblem&, const NormBackward<bfloat16>&);
template void norm_backward(const NormProblem&, const NormBackward<float16>&);

}  // namespace norma::norm_kernels::cpu

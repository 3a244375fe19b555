#include "ops/norm/norm_cpu.h"

namespace norma::norm_kernels::cpu {

template <class T>
void norm_forward(const NormProblem& problem, const NormForward<T>& arrays) {
  NormProblem rest = problem;
  if (has_own_passes(problem)) {
    own_passes(problem, arrays);
    rest.given_statistics = true;
  }
  if (rest.given_statistics && arrays.y == nullptr) {
    return;
  }
  switch (rest.walk) {
    case Walk::rows: return rows_forward(rest, arrays);
    case Walk::columns: return columns_forward(rest, arrays);
    case Walk::groups: return groups_forward(rest, arrays);
  }
}

template <class T>
void norm_backward(const NormProblem& problem, const NormBackward<T>& arrays) {
  switch (problem.walk) {
    case Walk::rows: return rows_backward(problem, arrays);
    case Walk::columns: return columns_backward(problem, arrays);
    case Walk::groups: return groups_backward(problem, arrays);
  }
}

template void norm_forward(const NormProblem&, const NormForward<float>&);
template void norm_forward(const NormProblem&, const NormForward<double>&);
template void norm_backward(const NormProblem&, const NormBackward<float>&);
template void norm_backward(const NormProblem&, const NormBackward<double>&);

}  // namespace norma::norm_kernels::cpu

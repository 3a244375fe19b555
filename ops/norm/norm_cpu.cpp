#include "ops/norm/norm_cpu.h"

namespace norma::norm_kernels::cpu {

template <class T>
void norm_forward(const NormProblem& problem, const NormForward<T>& arrays) {
  switch (problem.walk) {
    case Walk::rows: return rows_forward(problem, arrays);
    case Walk::columns: return columns_forward(problem, arrays);
    case Walk::groups: return groups_forward(problem, arrays);
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

#include "core/error.h"
#include "ops/norm/kernels.h"

namespace norma::norm_kernels::cuda {

template <class T>
void norm_forward(const NormProblem&, const NormForward<T>&) {
  fail("normalize", "this build of Norma has no CUDA");
}

template <class T>
void norm_backward(const NormProblem&, const NormBackward<T>&) {
  fail("normalize", "this build of Norma has no CUDA");
}

template void norm_forward(const NormProblem&, const NormForward<float>&);
template void norm_forward(const NormProblem&, const NormForward<double>&);
template void norm_backward(const NormProblem&, const NormBackward<float>&);
template void norm_backward(const NormProblem&, const NormBackward<double>&);

}  // namespace norma::norm_kernels::cuda

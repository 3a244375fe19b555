#include "core/error.h"
#include "core/half.h"
#include "ops/norm/kernels.h"

namespace norma::norm_kernels::cuda {

template <class S>
void norm_forward(const NormProblem&, const NormForward<S>&) {
  fail("normalize", "this build of Norma has no CUDA");
}

template <class S>
void norm_backward(const NormProblem&, const NormBackward<S>&) {
  fail("normalize", "this build of Norma has no CUDA");
}

template void norm_forward(const NormProblem&, const NormForward<float>&);
template void norm_forward(const NormProblem&, const NormForward<double>&);
template void norm_forward(const NormProblem&, const NormForward<bfloat16>&);
template void norm_forward(const NormProblem&, const NormForward<float16>&);
template void norm_backward(const NormProblem&, const NormBackward<float>&);
template void norm_backward(const NormProblem&, const NormBackward<double>&);
template void norm_backward(const NormProblem&, const NormBackward<bfloat16>&);
template void norm_backward(const NormProblem&, const NormBackward<float16>&);

}  // namespace norma::norm_kernels::cuda

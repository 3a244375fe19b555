#include "core/error.h"
#include "core/half.h"
#include "ops/map_norm/kernels.h"
#include "ops/map_norm/local_response_kernels.h"

namespace norma::norm_kernels::cuda {

template <class S>
void map_forward(const MapProblem&, const MapForward<S>&) {
  fail("normalize", "this build of Norma has no CUDA");
}

template <class S>
void map_sums(const MapProblem&, const MapSums<S>&) {
  fail("normalize", "this build of Norma has no CUDA");
}

template <class S>
void map_gradient(const MapProblem&, const MapGradient<S>&) {
  fail("normalize", "this build of Norma has no CUDA");
}

template <class S>
void local_response(const LocalResponseProblem&, const LocalResponse<S>&) {
  fail("local_response_norm", "this build of Norma has no CUDA");
}

template void map_forward(const MapProblem&, const MapForward<float>&);
template void map_forward(const MapProblem&, const MapForward<double>&);
template void map_forward(const MapProblem&, const MapForward<bfloat16>&);
template void map_forward(const MapProblem&, const MapForward<float16>&);
template void map_sums(const MapProblem&, const MapSums<float>&);
template void map_sums(const MapProblem&, const MapSums<double>&);
template void map_sums(const MapProblem&, const MapSums<bfloat16>&);
template void map_sums(const MapProblem&, const MapSums<float16>&);
template void map_gradient(const MapProblem&, const MapGradient<float>&);
template void map_gradient(const MapProblem&, const MapGradient<double>&);
template void map_gradient(const MapProblem&, const MapGradient<bfloat16>&);
template void map_gradient(const MapProblem&, const MapGradient<float16>&);
template void local_response(const LocalResponseProblem&, const LocalResponse<float>&);
template void local_response(const LocalResponseProblem&, const LocalResponse<double>&);
template void local_response(const LocalResponseProblem&, const LocalResponse<bfloat16>&);
template void local_response(const LocalResponseProblem&, const LocalResponse<float16>&);

}  // namespace norma::norm_kernels::cuda

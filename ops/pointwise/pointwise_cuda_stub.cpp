#include "core/error.h"
#include "ops/pointwise/kernels.h"

namespace norma::pointwise {

const Kernels& cuda_kernels() {
  fail("pointwise", "this build of Norma has no CUDA");
}

}  // namespace norma::pointwise

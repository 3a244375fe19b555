#include "core/error.h"
#include "ops/conv/kernels.h"

namespace norma::kernels {

const Conv2dImplementation* conv2d_cuda() {
  fail("conv2d", "this build of Norma has no CUDA");
}

}  // namespace norma::kernels

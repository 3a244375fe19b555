#include "core/error.h"
#include "ops/matmul/kernels.h"

namespace norma::kernels {

const MatmulImplementation* matmul_cuda() {
  fail("matmul", "this build of Norma has no CUDA");
}

}  // namespace norma::kernels

#include "ops/matmul/kernels.h"

namespace norma::kernels {

constinit const MatmulImplementation* const matmul_onednn = nullptr;

}  // namespace norma::kernels

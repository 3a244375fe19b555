#include "ops/random/cuda/dropout.h"
#include "ops/random/cuda/random_kernels.h"

namespace norma::kernels {
constinit const RandomKernels random_cuda = cuda::kRandomTable;
}

#include "ops/shape/cuda/index.h"
#include "ops/shape/cuda/index_kernels.h"

namespace norma::kernels {
constinit const IndexKernels index_cuda = cuda::kIndexTable;
}

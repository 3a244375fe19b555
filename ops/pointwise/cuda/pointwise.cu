#include "ops/pointwise/cuda/pointwise_kernels.h"
#include "ops/pointwise/cuda/pointwise_table.h"

namespace norma::kernels {
constinit const PointwiseKernels pointwise_cuda = cuda::kPointwiseTable;
}

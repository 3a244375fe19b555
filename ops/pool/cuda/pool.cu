#include "ops/pool/cuda/pool_kernels.h"
#include "ops/pool/cuda/pool_table.h"

namespace norma::kernels {
constinit const PoolKernels pool_cuda = cuda::kPoolTable;
}

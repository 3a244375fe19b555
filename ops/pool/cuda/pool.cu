#include "ops/pool/cuda/average_pool.h"
#include "ops/pool/cuda/max_pool.h"

namespace norma::kernels {

using namespace NORMA_BACKEND;

constinit const PoolKernels NORMA_TABLE(pool){.max_pool = max_pool,
                                              .max_pool_gradient = max_pool_gradient,
                                              .max_pool_pick = max_pool_pick,
                                              .average_pool = average_pool,
                                              .average_pool_gradient = average_pool_gradient};

}  // namespace norma::kernels

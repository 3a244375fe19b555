#include "ops/pool/cpu/pool_kernels.h"

namespace norma::kernels {

constinit const PoolKernels pool_cpu{.max_pool = cpu::max_pool,
                                     .max_pool_gradient = cpu::max_pool_gradient,
                                     .max_pool_pick = cpu::max_pool_pick,
                                     .average_pool = cpu::average_pool,
                                     .average_pool_gradient = cpu::average_pool_gradient};

}  // namespace norma::kernels

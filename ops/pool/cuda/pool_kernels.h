#pragma once

#include "ops/pool/kernels.h"

namespace norma::kernels {

extern const PoolKernels pool_cuda;
/// The same kernels, compiled for the host.
extern const PoolKernels pool_emulated;

}  // namespace norma::kernels

#pragma once

#include "ops/reduce/kernels.h"

namespace norma::kernels {

extern const ReduceKernels reduce_cuda;
/// The same kernels, compiled for the host.
extern const ReduceKernels reduce_emulated;

}  // namespace norma::kernels

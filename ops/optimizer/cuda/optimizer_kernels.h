#pragma once

#include "ops/optimizer/kernels.h"

namespace norma::kernels {

extern const OptimizerKernels optimizer_cuda;
/// The same kernels, compiled for the host.
extern const OptimizerKernels optimizer_emulated;

}  // namespace norma::kernels

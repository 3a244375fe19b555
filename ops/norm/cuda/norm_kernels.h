#pragma once

#include "ops/norm/kernels.h"

namespace norma::kernels {

extern const NormKernels norm_cuda;
/// The same kernels, compiled for the host.
extern const NormKernels norm_emulated;

}  // namespace norma::kernels

#pragma once

#include "ops/map_norm/kernels.h"

namespace norma::kernels {

extern const MapNormKernels map_norm_cuda;
/// The same kernels, compiled for the host.
extern const MapNormKernels map_norm_emulated;

}  // namespace norma::kernels

#pragma once

#include "ops/pointwise/kernels.h"

namespace norma::kernels {

extern const PointwiseKernels pointwise_cuda;
/// The same kernels, compiled for the host.
extern const PointwiseKernels pointwise_emulated;

}  // namespace norma::kernels

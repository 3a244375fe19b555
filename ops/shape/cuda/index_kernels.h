#pragma once

#include "ops/shape/kernels.h"

namespace norma::kernels {

extern const IndexKernels index_cuda;
/// The same kernels, compiled for the host.
extern const IndexKernels index_emulated;

}  // namespace norma::kernels

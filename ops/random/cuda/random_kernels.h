#pragma once

#include "ops/random/kernels.h"

namespace norma::kernels {

extern const RandomKernels random_cuda;
/// The same kernels, compiled for the host.
extern const RandomKernels random_emulated;

}  // namespace norma::kernels

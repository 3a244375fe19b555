#pragma once

#include "ops/loss/kernels.h"

namespace norma::kernels {

extern const LossKernels loss_cuda;
/// The same kernels, compiled for the host.
extern const LossKernels loss_emulated;

}  // namespace norma::kernels

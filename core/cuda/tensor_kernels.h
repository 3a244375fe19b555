#pragma once

#include "core/kernels.h"

namespace norma::kernels {

extern const TensorKernels tensor_cuda;
/// The same kernels, compiled for the host.
extern const TensorKernels tensor_emulated;

}  // namespace norma::kernels

#pragma once

#include "ops/loss/cuda/cross_entropy.h"
#include "ops/loss/cuda/softmax.h"

namespace norma::kernels::NORMA_BACKEND {

inline constexpr LossKernels kLossTable{.softmax = softmax,
                                        .softmax_backward = softmax_backward,
                                        .cross_entropy = cross_entropy,
                                        .cross_entropy_backward = cross_entropy_backward};

}  // namespace norma::kernels::NORMA_BACKEND

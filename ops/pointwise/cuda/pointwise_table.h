#pragma once

#include "ops/pointwise/cuda/dispatch.h"

namespace norma::kernels::NORMA_BACKEND {

inline constexpr PointwiseKernels kPointwiseTable{
    .unary = unary, .unary_backward = unary_backward, .binary = binary, .compare = compare, .where = where};

}  // namespace norma::kernels::NORMA_BACKEND

#pragma once

#include "ops/optimizer/cuda/steps.h"
#include "ops/optimizer/cuda/sum_of_squares.h"

namespace norma::kernels::NORMA_BACKEND {

inline constexpr OptimizerKernels kOptimizerTable{.sgd = sgd,
                                                  .adamw = adamw,
                                                  .sum_of_squares = sum_of_squares,
                                                  .clipping = clipping,
                                                  .scale = scale,
                                                  .cut_off = cut_off};

}  // namespace norma::kernels::NORMA_BACKEND

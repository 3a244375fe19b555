#include "ops/optimizer/cuda/steps.h"
#include "ops/optimizer/cuda/sum_of_squares.h"

namespace norma::kernels {

using namespace NORMA_BACKEND;

constinit const OptimizerKernels NORMA_TABLE(optimizer){.sgd = sgd,
                                                        .adamw = adamw,
                                                        .lamb_direction = lamb_direction,
                                                        .lamb_move = lamb_move,
                                                        .average = average,
                                                        .sums_of_squares = sums_of_squares,
                                                        .clipping = clipping,
                                                        .scale = scale,
                                                        .cut_off = cut_off};

}  // namespace norma::kernels

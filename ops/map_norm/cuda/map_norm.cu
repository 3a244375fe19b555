#include "ops/map_norm/cuda/local_response.h"
#include "ops/map_norm/cuda/maps.h"
#include "ops/map_norm/cuda/numbers.h"
#include "ops/map_norm/cuda/sums.h"

namespace norma::kernels {

using namespace NORMA_BACKEND;

constinit const MapNormKernels NORMA_TABLE(map_norm){.numbers = map_numbers,
                                                     .forward = map_forward,
                                                     .sums = map_sums,
                                                     .numbers_backward = map_numbers_backward,
                                                     .gradient = map_gradient,
                                                     .local_response = local_response};

}  // namespace norma::kernels

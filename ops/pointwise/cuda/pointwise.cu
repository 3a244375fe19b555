#include "ops/pointwise/cuda/dispatch.h"

namespace norma::kernels {

using namespace NORMA_BACKEND;

constinit const PointwiseKernels NORMA_TABLE(pointwise){
    .unary = unary, .unary_backward = unary_backward, .binary = binary, .compare = compare, .where = where};

}  // namespace norma::kernels

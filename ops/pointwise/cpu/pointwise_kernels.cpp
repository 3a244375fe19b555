#include "ops/pointwise/cpu/pointwise_kernels.h"

namespace norma::kernels {

constinit const PointwiseKernels pointwise_cpu{.unary = cpu::unary,
                                               .unary_backward = cpu::unary_backward,
                                               .binary = cpu::binary,
                                               .compare = cpu::compare,
                                               .where = cpu::where};

}  // namespace norma::kernels

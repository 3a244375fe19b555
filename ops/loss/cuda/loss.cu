#include "ops/loss/cuda/cross_entropy.h"
#include "ops/loss/cuda/softmax.h"

namespace norma::kernels {

using namespace NORMA_BACKEND;

constinit const LossKernels NORMA_TABLE(loss){.softmax = softmax,
                                              .softmax_backward = softmax_backward,
                                              .cross_entropy = cross_entropy,
                                              .cross_entropy_backward = cross_entropy_backward};

}  // namespace norma::kernels

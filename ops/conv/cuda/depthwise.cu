#include "ops/conv/cuda/depthwise.h"

namespace norma::kernels {
const Conv2dImplementation* conv2d_depthwise_cuda() {
  return &cuda::kDepthwise;
}
}  // namespace norma::kernels

#include "core/device.h"
#include "ops/conv/conv.h"
#include "ops/conv/cuda/bias_gradient.h"

// Convolutions on cuda-emulated: our own kernels for CUDA, and the CPU's libraries in place of cuDNN.

namespace norma::kernels {

namespace {

Implementations<Conv2dImplementation>& implementations() {
  static Implementations<Conv2dImplementation> list(
      "conv2d", "NORMA_CONV", {&conv2d_depthwise_emulated, conv2d_onednn, &conv2d_eigen, &conv2d_reference},
      conv2d_through_float, conv2d_modes());
  return list;
}

const Conv2dImplementation& choose(const Conv2dCase& conv, Conv2dPass pass) {
  return implementations().choose(conv, pass);
}

void bias_gradient(const Conv2dCase& conv, const void* dy, void* db) {
  bias_gradient_on(kCudaEmulated, conv, dy, db);
}

}  // namespace

constinit const ConvKernels conv_emulated{.choose = choose,
                                          .bias_gradient = bias_gradient,
                                          .implementations = implementations,
                                          .transposes_contiguous = true};

}  // namespace norma::kernels

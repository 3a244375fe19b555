#include "ops/conv/cuda/depthwise.h"

namespace norma::kernels {

namespace NORMA_BACKEND {

bool supports_depthwise(const Conv2dCase& conv, Conv2dPass /* pass */) {
  // Rows, and the elements of one, are counted in int. So are the tiles of a plane: 2^31 of them, of 33 columns and 7
  // rows or more, would be 2^38 pixels.
  constexpr int64_t kMost = int64_t{1} << 30;
  const bool depthwise = conv.groups == conv.c && conv.o == conv.c;
  const bool size = conv.kh == conv.kw && (conv.kh == 3 || conv.kh == 5 || conv.kh == 7);
  const bool stride = conv.stride_h == conv.stride_w && (conv.stride_h == 1 || conv.stride_h == 2);
  return depthwise && size && stride && conv.dilation_h == 1 && conv.dilation_w == 1 &&
         conv.h + 2 * conv.padding_h < kMost && conv.w + 2 * conv.padding_w < kMost / conv.c;
}

void depthwise_filter(const Conv2dCase& conv, bool gradient, const void* in, const void* weight, const void* bias,
                      void* out) {
  conv.channels_last ? filter_channels_last(conv, gradient, in, weight, bias, out)
                     : filter_contiguous(conv, gradient, in, weight, bias, out);
}

void depthwise_forward(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y,
                       Storage* /* keep */) {
  depthwise_filter(conv, /* gradient= */ false, x, weight, bias, y);
}
void depthwise_input_gradient(const Conv2dCase& conv, const void* dy, const void* weight, void* dx) {
  depthwise_filter(conv, /* gradient= */ true, dy, weight, /* bias= */ nullptr, dx);
}
void depthwise_weight_gradient(const Conv2dCase& conv, const void* x, const void* dy, void* dweight) {
  conv.channels_last ? weight_gradient_channels_last(conv, x, dy, dweight)
                     : weight_gradient_contiguous(conv, x, dy, dweight);
}

}  // namespace NORMA_BACKEND

using namespace NORMA_BACKEND;

constinit const Conv2dImplementation NORMA_TABLE(conv2d_depthwise){.name = "depthwise",
                                                                   .supports = supports_depthwise,
                                                                   .forward = depthwise_forward,
                                                                   .input_gradient = depthwise_input_gradient,
                                                                   .weight_gradient = depthwise_weight_gradient};

}  // namespace norma::kernels

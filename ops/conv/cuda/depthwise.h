#pragma once

#include "ops/conv/cuda/depthwise_taps.h"

// Our own implementation of depthwise convolutions: as many groups as input and as output channels, square filters of
// 3, 5 or 7 with the same stride, 1 or 2, along both axes, and without dilation.

namespace norma::kernels::NORMA_BACKEND {

// One file for each memory format defines these: depthwise_…_dispatch.h.

/// y of x, or, with `gradient`, dx of dy. bias may be null.
void filter_channels_last(const Conv2dCase& conv, bool gradient, const void* in, const void* weight, const void* bias,
                          void* out);
void weight_gradient_channels_last(const Conv2dCase& conv, const void* x, const void* dy, void* dweight);
void filter_contiguous(const Conv2dCase& conv, bool gradient, const void* in, const void* weight, const void* bias,
                       void* out);
void weight_gradient_contiguous(const Conv2dCase& conv, const void* x, const void* dy, void* dweight);

/// Calls f(taps) with an empty DepthwiseTaps for results y or, with `gradient`, dx.
template <bool gradient, class F>
void with_depthwise_taps(const Conv2dCase& conv, F&& f) {
  const auto with_size = [&](auto size) {
    if (conv.stride_h == 1) {
      f(DepthwiseTaps<size, 1, gradient>());
    } else {
      f(DepthwiseTaps<size, 2, gradient>());
    }
  };
  switch (conv.kh) {
    case 3: return with_size(std::integral_constant<int, 3>{});
    case 5: return with_size(std::integral_constant<int, 5>{});
    default: return with_size(std::integral_constant<int, 7>{});
  }
}

inline bool supports_depthwise(const Conv2dCase& conv, Conv2dPass /* pass */) {
  constexpr int64_t kMost = int64_t{1} << 30;  // elements of a row, and rows, are counted in int
  const bool depthwise = conv.groups == conv.c && conv.o == conv.c;
  const bool size = conv.kh == conv.kw && (conv.kh == 3 || conv.kh == 5 || conv.kh == 7);
  const bool stride = conv.stride_h == conv.stride_w && (conv.stride_h == 1 || conv.stride_h == 2);
  return depthwise && size && stride && conv.dilation_h == 1 && conv.dilation_w == 1 &&
         conv.h + 2 * conv.padding_h < kMost && conv.w + 2 * conv.padding_w < kMost / conv.c;
}

inline void depthwise_filter(const Conv2dCase& conv, bool gradient, const void* in, const void* weight,
                             const void* bias, void* out) {
  conv.channels_last ? filter_channels_last(conv, gradient, in, weight, bias, out)
                     : filter_contiguous(conv, gradient, in, weight, bias, out);
}

inline void depthwise_forward(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y,
                              Storage* /* keep */) {
  depthwise_filter(conv, /* gradient= */ false, x, weight, bias, y);
}
inline void depthwise_input_gradient(const Conv2dCase& conv, const void* dy, const void* weight, void* dx) {
  depthwise_filter(conv, /* gradient= */ true, dy, weight, /* bias= */ nullptr, dx);
}
inline void depthwise_weight_gradient(const Conv2dCase& conv, const void* x, const void* dy, void* dweight) {
  conv.channels_last ? weight_gradient_channels_last(conv, x, dy, dweight)
                     : weight_gradient_contiguous(conv, x, dy, dweight);
}

inline constexpr Conv2dImplementation kDepthwise{.name = "depthwise",
                                                 .supports = supports_depthwise,
                                                 .forward = depthwise_forward,
                                                 .input_gradient = depthwise_input_gradient,
                                                 .weight_gradient = depthwise_weight_gradient};

}  // namespace norma::kernels::NORMA_BACKEND

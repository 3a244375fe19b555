#pragma once

#include "ops/conv/cuda/depthwise_taps.h"

// Our own implementation of depthwise convolutions: as many groups as input and as output channels, square filters of
// 3, 5 or 7 with the same stride, 1 or 2, along both axes, and without dilation.

namespace norma::kernels::NORMA_BACKEND {

// One file for each memory format defines these.

/// Computes y of x, or, with `gradient`, dx of dy. bias may be null.
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

}  // namespace norma::kernels::NORMA_BACKEND

#pragma once

#include "ops/conv/cuda/depthwise.h"
#include "ops/conv/cuda/depthwise_channels_last.h"

namespace norma::kernels::NORMA_BACKEND {

void filter_channels_last(const Conv2dCase& conv, bool gradient, const void* in, const void* weight, const void* bias,
                          void* out) {
  const DepthwiseImages of(conv, gradient);
  dispatch_any_floating("conv2d", conv.dtype, [&](auto zero) {
    using S = decltype(zero);
    const auto run = [&]<class Taps>(Taps) {
      filter_channels_last<S, Taps>(of, static_cast<const S*>(in), static_cast<const S*>(weight),
                                    static_cast<const S*>(bias), static_cast<S*>(out));
    };
    if (gradient) {
      with_depthwise_taps<true>(conv, run);
    } else {
      with_depthwise_taps<false>(conv, run);
    }
  });
}

void weight_gradient_channels_last(const Conv2dCase& conv, const void* x, const void* dy, void* dweight) {
  const DepthwiseImages of(conv, /* gradient= */ false);
  dispatch_any_floating("conv2d", conv.dtype, [&](auto zero) {
    using S = decltype(zero);
    with_depthwise_taps<false>(conv, [&]<class Taps>(Taps) {
      weight_gradient_channels_last<S, Taps>(of, static_cast<const S*>(x), static_cast<const S*>(dy),
                                             static_cast<S*>(dweight));
    });
  });
}

}  // namespace norma::kernels::NORMA_BACKEND

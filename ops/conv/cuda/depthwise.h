#pragma once

#include "core/cuda/number.h"
#include "ops/conv/kernels.h"
#include "ops/reduce/device_reduce.h"

#include <algorithm>

// Our own implementation of depthwise convolutions: as many groups as input and as output channels, square filters of
// 3, 5 or 7 with the same stride, 1 or 2, along both axes, and without dilation. A thread makes a strip of neighbouring
// results along one axis (W in channels_last, H in contiguous), so that each input it loads serves all of them. Size
// and stride of the filter are constants. So is, for every input of a strip, the tap that takes it to each result.

namespace norma::kernels::NORMA_BACKEND {

/// The `images` (channels, in_h, in_w) become (channels, out_h, out_w) by a filter for each channel.
struct DepthwiseImages {
  int64_t images, channels;
  int in_h, in_w, out_h, out_w;
  int padding_h, padding_w;  ///< of the convolution

  /// Turns x into y; with `gradient`, dy into dx.
  DepthwiseImages(const Conv2dCase& conv, bool gradient)
      : images(conv.n),
        channels(conv.c),
        in_h(static_cast<int>(gradient ? conv.oh : conv.h)),
        in_w(static_cast<int>(gradient ? conv.ow : conv.w)),
        out_h(static_cast<int>(gradient ? conv.h : conv.oh)),
        out_w(static_cast<int>(gradient ? conv.w : conv.ow)),
        padding_h(static_cast<int>(conv.padding_h)),
        padding_w(static_cast<int>(conv.padding_w)) {}
};

// Along one axis, with stride s and padding p:
//   y[o]  = sum over taps t of weight[t] x[s o - p + t]
// dx[i] = sum over o of weight[i + p - s o] dy[o], for the o where that is a tap

/// The inputs and taps of results. `gradient`: the results are dx.
template <int size, int stride, bool gradient>
struct DepthwiseTaps {
  static constexpr int kSize = size;
  static constexpr int kStride = stride;
  static constexpr bool kGradient = gradient;
  /// Results of a strip. Most networks have images of a multiple of 7; strips of dx begin at multiples of the stride.
  static constexpr int kStrip = gradient && stride == 2 ? 8 : 7;
  /// The distance in inputs from one strip to the next.
  static constexpr int kStep = gradient ? kStrip / stride : kStrip * stride;
  /// The inputs of a strip are kFirst, …, kLast.
  static constexpr int kFirst = gradient ? -((size - 1) / stride) : 0;
  static constexpr int kLast = gradient ? (kStrip - 1) / stride : stride * (kStrip - 1) + size - 1;
  static constexpr int kInputs = kLast - kFirst + 1;
  /// The number of inputs of one result.
  static constexpr int kOfResult = gradient ? (size + stride - 1) / stride : size;

  /// The tap that takes input q of a strip to its result j; none if that is not in [0, size).
  static constexpr int tap(int q, int j) { return gradient ? j - stride * q : q - stride * j; }
  static constexpr bool is_tap(int tap) { return tap >= 0 && tap < size; }

  /// The places of input 0, and of result 0, of strip 0. Results before the image are not stored.
  static constexpr int input_begin(int padding) { return gradient ? padding / stride : -padding; }
  static constexpr int result_begin(int padding) { return gradient ? padding / stride * stride - padding : 0; }
  /// The number of strips that hold `results`.
  static constexpr int strips(int results, int padding) {
    return (results - result_begin(padding) + kStrip - 1) / kStrip;
  }

  /// Number i of the kOfResult inputs of result `o`, and the tap that takes it there; the tap `size` stands for none.
  static constexpr int input_of(int o, int padding, int i) {
    return gradient ? (o + padding) / stride - i : stride * o - padding + i;
  }
  static constexpr int tap_of(int o, int padding, int i) { return gradient ? (o + padding) % stride + stride * i : i; }
};

NORMA_DEVICE bool is_inside(int position, int size) {
  return static_cast<unsigned>(position) < static_cast<unsigned>(size);
}

inline constexpr int kDepthwiseThreads = 256;
/// The number of blocks that share the sums of a weight gradient: enough to keep any device busy.
inline constexpr int64_t kDepthwiseBlocks = 384;

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

/// The second stage of a weight gradient: adds the partial sums of the blocks in a fixed order, as elements S.
template <class S>
void add_partials(const ReduceShape& shape, const compute_t<S>* partials, S* dweight) {
  reduce(ReduceAxes(shape), Folding<Sum<compute_t<S>>>{}, partials, nullptr, /* scale= */ 1.0, dweight);
}

}  // namespace norma::kernels::NORMA_BACKEND

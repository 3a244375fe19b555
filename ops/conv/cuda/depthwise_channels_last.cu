#include "ops/conv/cuda/depthwise.h"

// Depthwise convolutions in channels_last. Lanes run along the channels, some neighbouring ones each, and a block has
// one slab of channels for all its pixels.

namespace norma::kernels::NORMA_BACKEND {

/// The way in which lanes and blocks share the channels.
struct ChannelSlabs {
  int64_t count;
  int lanes;  ///< of a slab

  ChannelSlabs(int64_t channels, int vector)
      : count(ceil_div(channels / vector, kWarp)), lanes(static_cast<int>(ceil_div(channels / vector, count))) {}
};

/// The place of a thread in a slab.
struct SlabPlace {
  int64_t first;  ///< channel of the slab
  int channels;   ///< of the slab
  int channel;    ///< in the slab, the first of this thread
  int row;        ///< threads of a block with the same channels

  NORMA_DEVICE SlabPlace(int64_t slab, int lanes, int vector, int64_t all_channels)
      : first(slab * lanes * vector), channel(thread() % lanes * vector), row(thread() / lanes) {
    const int64_t rest = all_channels - first;
    channels = rest < lanes * vector ? static_cast<int>(rest) : lanes * vector;
  }
};

/// Loads neighbouring channels of the pixel at `position` of a row; 0 outside.
template <class S, int vector>
NORMA_DEVICE void load_pixel(const S* row, int position, int width, int channels, compute_t<S> (&values)[vector]) {
  if (is_inside(position, width)) {
    load<S, vector>(row + position * channels, values);
  } else {
    NORMA_UNROLL
    for (int v = 0; v < vector; ++v) {
      values[v] = compute_t<S>(0);
    }
  }
}

/// The pitch of a slab's weights in shared memory: (taps, pitch), which spreads the taps of a channel over the banks.
NORMA_DEVICE int weight_pitch(int lanes, int vector) {
  return (lanes + 1) * vector;
}

template <class S, class Taps, int vector, class T = compute_t<S>>
NORMA_KERNEL void filter_pixels(DepthwiseImages of, ChannelSlabs slabs, const S* in, const S* weight, const S* bias,
                                S* out) {
  constexpr int kTaps = Taps::kSize * Taps::kSize;
  const auto channels = static_cast<int>(of.channels);
  const int64_t slab = block() % slabs.count;
  const SlabPlace place(slab, slabs.lanes, vector, of.channels);
  const int pitch = weight_pitch(slabs.lanes, vector);
  T* weights = shared_memory<T>();
  for (int i = thread(); i < place.channels * kTaps; i += threads()) {
    const int channel = i / kTaps;
    weights[(i - channel * kTaps) * pitch + channel] = to_number(weight[place.first * kTaps + i]);
  }
  sync_threads();
  const int rows = threads() / slabs.lanes;
  if (place.row >= rows || place.channel >= place.channels) {
    return;
  }
  in += place.first + place.channel;
  out += place.first + place.channel;
  T start[vector] = {};
  if (bias != nullptr) {
    load<S, vector>(bias + place.first + place.channel, start);
  }
  // The threads of a block make results that lie above each other, since these share most of their inputs.
  const int strips = Taps::strips(of.out_w, of.padding_w);
  const int64_t count = of.images * strips * of.out_h;
  for (int64_t i = block() / slabs.count * rows + place.row; i < count; i += blocks() / slabs.count * rows) {
    const int64_t column = quotient(i, of.out_h);
    const int out_row = static_cast<int>(i - column * of.out_h);
    const int64_t image = quotient(column, strips);
    const int strip = static_cast<int>(column - image * strips);
    T sums[Taps::kStrip][vector];
    NORMA_UNROLL
    for (int j = 0; j < Taps::kStrip; ++j) {
      NORMA_UNROLL
      for (int v = 0; v < vector; ++v) {
        sums[j][v] = start[v];
      }
    }
    const int first = Taps::input_begin(of.padding_w) + strip * Taps::kStep;
    for (int k = 0; k < Taps::kOfResult; ++k) {
      const int tap_row = Taps::tap_of(out_row, of.padding_h, k);
      const int in_row = Taps::input_of(out_row, of.padding_h, k);
      if (tap_row >= Taps::kSize || !is_inside(in_row, of.in_h)) {
        continue;
      }
      const S* row = in + (image * of.in_h + in_row) * of.in_w * of.channels;
      T taps[Taps::kSize][vector];
      NORMA_UNROLL
      for (int t = 0; t < Taps::kSize; ++t) {
        load<T, vector>(weights + (tap_row * Taps::kSize + t) * pitch + place.channel, taps[t]);
      }
      NORMA_UNROLL
      for (int q = Taps::kFirst; q <= Taps::kLast; ++q) {
        T values[vector];
        load_pixel<S, vector>(row, first + q, of.in_w, channels, values);
        NORMA_UNROLL
        for (int j = 0; j < Taps::kStrip; ++j) {
          const int tap = Taps::tap(q, j);
          if (Taps::is_tap(tap)) {
            NORMA_UNROLL
            for (int v = 0; v < vector; ++v) {
              sums[j][v] = fused_multiply_add(values[v], taps[tap][v], sums[j][v]);
            }
          }
        }
      }
    }
    S* to = out + (image * of.out_h + out_row) * of.out_w * of.channels;
    const int out_first = Taps::result_begin(of.padding_w) + strip * Taps::kStrip;
    NORMA_UNROLL
    for (int j = 0; j < Taps::kStrip; ++j) {
      if (is_inside(out_first + j, of.out_w)) {
        store<S, vector>(to + (out_first + j) * channels, sums[j]);
      }
    }
  }
}

/// The rows of y, of all images, are cut into parts. A block adds up one part for a slab of channels, and a thread one
/// row of taps.
struct PixelParts {
  int64_t rows;  ///< of a part
  int64_t count;

  PixelParts(const DepthwiseImages& of, int64_t slabs) {
    constexpr int64_t kFewestPixels = 64;  // of a part; a smaller one is not worth its partial sums
    const int64_t all = of.images * of.out_h;
    const int64_t wanted = ceil_div(all, std::max<int64_t>(1, kDepthwiseBlocks / slabs));
    rows = std::max(wanted, ceil_div(kFewestPixels, of.out_w));
    count = ceil_div(all, rows);
  }
};

/// Writes partials (part, tap, channel) of dweight. `of` are the images x and y.
template <class S, class Taps, int vector, class T = compute_t<S>>
NORMA_KERNEL void weight_sums_of_pixels(DepthwiseImages of, ChannelSlabs slabs, PixelParts parts, const S* x,
                                        const S* dy, T* partials) {
  const int64_t part = quotient(block(), slabs.count);
  const SlabPlace place(block() - part * slabs.count, slabs.lanes, vector, of.channels);
  const auto channels = static_cast<int>(of.channels);
  const int tap_row = place.row;
  if (tap_row >= Taps::kSize || place.channel >= place.channels) {
    return;
  }
  x += place.first + place.channel;
  dy += place.first + place.channel;
  double totals[Taps::kSize][vector] = {};
  const int64_t begin = part * parts.rows;
  const int64_t all = of.images * of.out_h;
  const int64_t end = begin + parts.rows < all ? begin + parts.rows : all;
  for (int64_t out_row = begin; out_row < end; ++out_row) {
    const int64_t image = quotient(out_row, of.out_h);
    const int in_row = Taps::input_of(static_cast<int>(out_row - image * of.out_h), of.padding_h, tap_row);
    if (!is_inside(in_row, of.in_h)) {
      continue;
    }
    const S* x_row = x + (image * of.in_h + in_row) * of.in_w * of.channels;
    const S* dy_row = dy + out_row * of.out_w * of.channels;
    T sums[Taps::kSize][vector] = {};  // of a row; in T, since long sums are made in double
    for (int first = 0; first < of.out_w; first += Taps::kStrip) {
      T gradients[Taps::kStrip][vector];
      NORMA_UNROLL
      for (int j = 0; j < Taps::kStrip; ++j) {
        load_pixel<S, vector>(dy_row, first + j, of.out_w, channels, gradients[j]);
      }
      const int in_first = Taps::input_of(first, of.padding_w, 0);
      NORMA_UNROLL
      for (int q = Taps::kFirst; q <= Taps::kLast; ++q) {
        T values[vector];
        load_pixel<S, vector>(x_row, in_first + q, of.in_w, channels, values);
        NORMA_UNROLL
        for (int j = 0; j < Taps::kStrip; ++j) {
          const int tap = Taps::tap(q, j);
          if (Taps::is_tap(tap)) {
            NORMA_UNROLL
            for (int v = 0; v < vector; ++v) {
              sums[tap][v] = fused_multiply_add(values[v], gradients[j][v], sums[tap][v]);
            }
          }
        }
      }
    }
    NORMA_UNROLL
    for (int t = 0; t < Taps::kSize; ++t) {
      NORMA_UNROLL
      for (int v = 0; v < vector; ++v) {
        totals[t][v] += static_cast<double>(sums[t][v]);
      }
    }
  }
  NORMA_UNROLL
  for (int t = 0; t < Taps::kSize; ++t) {
    T rounded[vector];
    NORMA_UNROLL
    for (int v = 0; v < vector; ++v) {
      rounded[v] = static_cast<T>(totals[t][v]);
    }
    const int64_t tap = tap_row * Taps::kSize + t;
    store<T, vector>(partials + (part * Taps::kSize * Taps::kSize + tap) * of.channels + place.first + place.channel,
                     rounded);
  }
}

/// The number of neighbouring channels of a thread.
template <class S>
inline constexpr int kFilterVector = sizeof(S) == 8 ? 1 : 4;
template <class S>
inline constexpr int kWeightSumVector = sizeof(S) == 8 ? 1 : 2;

/// Calls f(vector) with `most`, or 1 if vectors of so many channels cannot be loaded from all of these.
template <int most, class F, class... Pointers>
void with_channel_vector(int64_t channels, F&& f, const Pointers*... pointers) {
  if (most > 1 && channels % most == 0 && are_aligned(pointers...)) {
    f(std::integral_constant<int, most>{});
  } else {
    f(std::integral_constant<int, 1>{});
  }
}

/// The threads of a block of filter_pixels(). They have so many registers that few larger blocks would fit.
inline constexpr int kFilterThreads = 128;

template <class S, class Taps>
void filter_channels_last(const DepthwiseImages& of, const S* in, const S* weight, const S* bias, S* out) {
  with_channel_vector<kFilterVector<S>>(
      of.channels,
      [&](auto vector) {
        const ChannelSlabs slabs(of.channels, vector);
        const int64_t work = of.images * Taps::strips(of.out_w, of.padding_w) * of.out_h * slabs.lanes;
        const int64_t most = ceil_div(int64_t{processors()} * 8, slabs.count);
        const int64_t blocks = std::clamp<int64_t>(ceil_div(work, kFilterThreads), 1, most);
        const auto bytes =
            static_cast<size_t>(Taps::kSize * Taps::kSize * (slabs.lanes + 1) * vector) * sizeof(compute_t<S>);
        launch(blocks * slabs.count, kFilterThreads, bytes, current_stream(), filter_pixels<S, Taps, vector>, of, slabs,
               in, weight, bias, out);
      },
      in, bias, out);
}

template <class S, class Taps>
void weight_gradient_channels_last(const DepthwiseImages& of, const S* x, const S* dy, S* dweight) {
  using T = compute_t<S>;
  constexpr int kTaps = Taps::kSize * Taps::kSize;
  with_channel_vector<kWeightSumVector<S>>(
      of.channels,
      [&](auto vector) {
        const ChannelSlabs slabs(of.channels, vector);
        const PixelParts parts(of, slabs.count);
        const DeviceBuffer<T> partials(parts.count * kTaps * of.channels);
        launch(parts.count * slabs.count, threads_for(slabs.lanes * Taps::kSize, kDepthwiseThreads), 0,
               current_stream(), weight_sums_of_pixels<S, Taps, vector>, of, slabs, parts, x, dy, partials.data());
        add_partials({.sizes = {parts.count, kTaps, of.channels},
                      .x_strides = {kTaps * of.channels, of.channels, 1},
                      .y_strides = {0, 1, kTaps}},
                     partials.data(), dweight);
      },
      x, dy);
}

void filter_channels_last(const Conv2dCase& conv, bool gradient, const void* in, const void* weight, const void* bias,
                          void* out) {
  const DepthwiseImages of(conv, gradient);
  dispatch_any_floating("conv2d", conv.dtype, [&]<class S>(S) {
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
  dispatch_any_floating("conv2d", conv.dtype, [&]<class S>(S) {
    with_depthwise_taps<false>(conv, [&]<class Taps>(Taps) {
      weight_gradient_channels_last<S, Taps>(of, static_cast<const S*>(x), static_cast<const S*>(dy),
                                             static_cast<S*>(dweight));
    });
  });
}

}  // namespace norma::kernels::NORMA_BACKEND

#include "core/buffer.h"
#include "core/parallel.h"
#include "ops/conv/kernels.h"

#include <Eigen/Core>

#include <algorithm>
#include <type_traits>

namespace norma::kernels {

namespace {

// im2col and a matrix product. For a block of output rows of one image and group, `col` has a row for each output pixel
// (P) and a column for each weight of one output channel (K = c / groups * kh * kw), so that
//   y = col weightᵀ,   dcol = dy weight,   dweight = sum over blocks of dyᵀ col.
// K runs over (c, kh, kw) for NCHW and (kh, kw, c) for NHWC: then runs of memory are copied. P is innermost for NCHW.

using Eigen::Dynamic;

/// A matrix in someone's memory; T may be const.
template <class T, int kOrder, class Matrix = Eigen::Matrix<std::remove_const_t<T>, Dynamic, Dynamic, kOrder>>
using Map =
    Eigen::Map<std::conditional_t<std::is_const_v<T>, const Matrix, Matrix>, Eigen::Unaligned, Eigen::OuterStride<>>;

/// Sizes derived from a case.
struct Blocks {
  int64_t group_c, group_o;  // channels of one group
  int64_t k;                 // weights of one output channel
  int64_t rows;              // output rows of one block
  int64_t count;             // blocks of one image

  explicit Blocks(const Conv2dCase& conv)
      : group_c(conv.c / conv.groups), group_o(conv.o / conv.groups), k(group_c * conv.kh * conv.kw) {
    constexpr int64_t kElements = 128 * 1024;  // col then fits the second-level cache
    rows = std::clamp<int64_t>(kElements / (k * conv.ow), 1, conv.oh);
    count = (conv.oh + rows - 1) / rows;
  }
  [[nodiscard]] int64_t pixels(const Conv2dCase& conv) const { return rows * conv.ow; }
};

/// Output positions [first, last) along one axis whose input position o * stride + offset lies in [0, size).
struct Range {
  int64_t first, last;
  Range(int64_t size, int64_t outputs, int64_t stride, int64_t offset) {
    first = offset >= 0 ? 0 : (-offset - 1) / stride + 1;
    last = offset >= size ? 0 : (size - 1 - offset) / stride + 1;
    first = std::min(first, outputs);
    last = std::clamp(last, first, outputs);
  }
};

/// Calls f(c, kh, kw, oh - oh0, columns, source) for each weight and output row: `columns` are the output columns
/// inside the image, `source` is the element of x that belongs to output column 0 (maybe outside), or -1 when the whole
/// row is outside.
template <class F>
void for_each_row(const Conv2dCase& conv, int64_t oh0, int64_t oh1, int64_t channels, F&& f) {
  for (int64_t kh = 0; kh < conv.kh; ++kh) {
    for (int64_t kw = 0; kw < conv.kw; ++kw) {
      const int64_t offset_w = kw * conv.dilation_w - conv.padding_w;
      const Range columns(conv.w, conv.ow, conv.stride_w, offset_w);
      for (int64_t oh = oh0; oh < oh1; ++oh) {
        const int64_t h = oh * conv.stride_h + kh * conv.dilation_h - conv.padding_h;
        const bool inside = h >= 0 && h < conv.h;
        for (int64_t c = 0; c < channels; ++c) {
          f(c, kh, kw, oh - oh0, inside ? columns : Range(0, 0, 1, 0), h * conv.w + offset_w);
        }
      }
    }
  }
}

/// Copies weights between (o, c, kh, kw) and (o, kh, kw, c) order.
template <class T>
void reorder_weight(const Conv2dCase& conv, const T* in, bool to_channels_last, T* out) {
  const int64_t channels = conv.c / conv.groups;
  const int64_t taps = conv.kh * conv.kw;
  for (int64_t o = 0; o < conv.o; ++o) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t tap = 0; tap < taps; ++tap) {
        const int64_t nchw = (o * channels + c) * taps + tap;
        const int64_t nhwc = (o * taps + tap) * channels + c;
        to_channels_last ? out[nhwc] = in[nchw] : out[nchw] = in[nhwc];
      }
    }
  }
}

/// The three passes for one order of memory.
template <class T, bool kChannelsLast>
struct Passes {
  static constexpr int kOrder = kChannelsLast ? Eigen::RowMajor : Eigen::ColMajor;
  const Conv2dCase& conv;
  Blocks blocks{conv};

  /// The offset of image n and group g of x, and of output row oh of y.
  [[nodiscard]] int64_t x_offset(int64_t n, int64_t g) const {
    return kChannelsLast ? n * conv.h * conv.w * conv.c + g * blocks.group_c
                         : (n * conv.c + g * blocks.group_c) * conv.h * conv.w;
  }
  [[nodiscard]] int64_t y_offset(int64_t n, int64_t g, int64_t oh) const {
    return kChannelsLast ? (n * conv.oh + oh) * conv.ow * conv.o + g * blocks.group_o
                         : ((n * conv.o + g * blocks.group_o) * conv.oh + oh) * conv.ow;
  }
  [[nodiscard]] int64_t last_row(int64_t block) const { return std::min(conv.oh, (block + 1) * blocks.rows); }

  /// P x K
  auto columns(T* col, int64_t pixels) const {
    return Map<T, kOrder>(col, pixels, blocks.k, Eigen::OuterStride<>(kChannelsLast ? blocks.k : pixels));
  }
  /// P x O of one group
  template <class U>
  auto outputs(U* y, int64_t pixels) const {
    return Map<U, kOrder>(y, pixels, blocks.group_o, Eigen::OuterStride<>(kChannelsLast ? conv.o : conv.oh * conv.ow));
  }
  /// O x K of one group
  auto weights(const T* weight, int64_t g) const {
    return Map<const T, Eigen::RowMajor>(weight + g * blocks.group_o * blocks.k, blocks.group_o, blocks.k,
                                         Eigen::OuterStride<>(blocks.k));
  }
  /// Fills col with what the output rows [oh0, oh1) read of an image and group of x.
  void gather(const T* x, int64_t oh0, int64_t oh1, T* col) const {
    for_each_row(conv, oh0, oh1, kChannelsLast ? 1 : blocks.group_c,
                 [&](int64_t c, int64_t kh, int64_t kw, int64_t row, Range inside, int64_t source) {
                   if constexpr (kChannelsLast) {
                     for (int64_t ow = 0; ow < conv.ow; ++ow) {
                       T* out = col + (row * conv.ow + ow) * blocks.k + (kh * conv.kw + kw) * blocks.group_c;
                       if (ow < inside.first || ow >= inside.last) {
                         std::fill(out, out + blocks.group_c, T(0));
                       } else {
                         std::copy_n(x + (source + ow * conv.stride_w) * conv.c, blocks.group_c, out);
                       }
                     }
                   } else {
                     T* out = col + (((c * conv.kh + kh) * conv.kw + kw) * (oh1 - oh0) + row) * conv.ow;
                     const int64_t base = c * conv.h * conv.w + source;
                     std::fill(out, out + inside.first, T(0));
                     for (int64_t ow = inside.first; ow < inside.last; ++ow) {
                       out[ow] = x[base + ow * conv.stride_w];
                     }
                     std::fill(out + inside.last, out + conv.ow, T(0));
                   }
                 });
  }
  /// The reverse of gather(), which adds to x.
  void scatter(const T* col, int64_t oh0, int64_t oh1, T* x) const {
    for_each_row(conv, oh0, oh1, kChannelsLast ? 1 : blocks.group_c,
                 [&](int64_t c, int64_t kh, int64_t kw, int64_t row, Range inside, int64_t source) {
                   for (int64_t ow = inside.first; ow < inside.last; ++ow) {
                     if constexpr (kChannelsLast) {
                       const T* in = col + (row * conv.ow + ow) * blocks.k + (kh * conv.kw + kw) * blocks.group_c;
                       T* out = x + (source + ow * conv.stride_w) * conv.c;
                       for (int64_t i = 0; i < blocks.group_c; ++i) {
                         out[i] += in[i];
                       }
                     } else {
                       const T* in = col + (((c * conv.kh + kh) * conv.kw + kw) * (oh1 - oh0) + row) * conv.ow;
                       x[c * conv.h * conv.w + source + ow * conv.stride_w] += in[ow];
                     }
                   }
                 });
  }

  void forward(const T* x, const T* weight, const T* bias, T* y) const {
    const int64_t tasks = conv.n * conv.groups * blocks.count;
    parallel_for(0, tasks, /* grain= */ 1, [&](int64_t first, int64_t last) {
      const Buffer<T> col(blocks.pixels(conv) * blocks.k);
      for (int64_t task = first; task < last; ++task) {
        const int64_t block = task % blocks.count;
        const int64_t g = task / blocks.count % conv.groups;
        const int64_t n = task / blocks.count / conv.groups;
        const int64_t oh0 = block * blocks.rows;
        const int64_t pixels = (last_row(block) - oh0) * conv.ow;
        gather(x + x_offset(n, g), oh0, last_row(block), col.data());
        auto out = outputs(y + y_offset(n, g, oh0), pixels);
        out.noalias() = columns(col.data(), pixels) * weights(weight, g).transpose();
        if (bias != nullptr) {
          out.rowwise() += Eigen::Map<const Eigen::Matrix<T, 1, Dynamic>>(bias + g * blocks.group_o, blocks.group_o);
        }
      }
    });
  }

  void input_gradient(const T* dy, const T* weight, T* dx) const {
    parallel_for(0, conv.x_numel(), kPointwiseGrain,
                 [&](int64_t first, int64_t last) { std::fill(dx + first, dx + last, T(0)); });
    // Blocks of one image overlap in dx, so one thread takes all of them.
    parallel_for(0, conv.n * conv.groups, /* grain= */ 1, [&](int64_t first, int64_t last) {
      const Buffer<T> col(blocks.pixels(conv) * blocks.k);
      for (int64_t task = first; task < last; ++task) {
        const int64_t g = task % conv.groups;
        const int64_t n = task / conv.groups;
        for (int64_t block = 0; block < blocks.count; ++block) {
          const int64_t oh0 = block * blocks.rows;
          const int64_t pixels = (last_row(block) - oh0) * conv.ow;
          columns(col.data(), pixels).noalias() = outputs(dy + y_offset(n, g, oh0), pixels) * weights(weight, g);
          scatter(col.data(), oh0, last_row(block), dx + x_offset(n, g));
        }
      }
    });
  }

  void weight_gradient(const T* x, const T* dy, T* dweight) const {
    // Images are cut into parts by the shape alone. Each part has a sum of its own; they are added up in order.
    constexpr int64_t kPartialElements = 16 * 1024 * 1024;
    const int64_t count = conv.o * blocks.k;
    const int64_t parts = std::clamp<int64_t>(kPartialElements / count, 1, std::min<int64_t>(conv.n, 16));
    const Buffer<T> partial(parts * count);
    parallel_for(0, parts * conv.groups, /* grain= */ 1, [&](int64_t first, int64_t last) {
      const Buffer<T> col(blocks.pixels(conv) * blocks.k);
      for (int64_t task = first; task < last; ++task) {
        const int64_t g = task % conv.groups;
        const int64_t part = task / conv.groups;
        T* out = partial.data() + part * count + g * blocks.group_o * blocks.k;
        Map<T, Eigen::RowMajor> sum(out, blocks.group_o, blocks.k, Eigen::OuterStride<>(blocks.k));
        sum.setZero();
        for (int64_t n = part * conv.n / parts; n < (part + 1) * conv.n / parts; ++n) {
          for (int64_t block = 0; block < blocks.count; ++block) {
            const int64_t oh0 = block * blocks.rows;
            const int64_t pixels = (last_row(block) - oh0) * conv.ow;
            gather(x + x_offset(n, g), oh0, last_row(block), col.data());
            sum.noalias() += outputs(dy + y_offset(n, g, oh0), pixels).transpose() * columns(col.data(), pixels);
          }
        }
      }
    });
    parallel_for(0, count, kPointwiseGrain, [&](int64_t first, int64_t last) {
      std::copy(partial.data() + first, partial.data() + last, dweight + first);
      for (int64_t part = 1; part < parts; ++part) {
        const T* values = partial.data() + part * count;
        for (int64_t i = first; i < last; ++i) {
          dweight[i] += values[i];
        }
      }
    });
  }
};

/// Calls f(passes) for the dtype and the order of memory of a case.
template <class F>
void with_passes(const Conv2dCase& conv, F&& f) {
  dispatch_floating("conv2d", conv.dtype,
                    [&]<class T>(T) { conv.channels_last ? f(Passes<T, true>{conv}) : f(Passes<T, false>{conv}); });
}

/// Calls f(weight) with the weights in the order of the activations.
template <class T, class F>
void with_ordered_weight(const Conv2dCase& conv, const void* weight, F&& f) {
  if (conv.weight_channels_last == conv.channels_last) {
    f(static_cast<const T*>(weight));
    return;
  }
  const Buffer<T> ordered(conv.weight_numel());
  reorder_weight(conv, static_cast<const T*>(weight), conv.channels_last, ordered.data());
  f(ordered.data());
}

bool supports(const Conv2dCase& conv, Conv2dPass) {
  return conv.dtype == DType::float32 || conv.dtype == DType::float64;
}

void forward(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y,
             Storage* /* keep */) {
  with_passes(conv, [&]<class T, bool kChannelsLast>(const Passes<T, kChannelsLast>& passes) {
    with_ordered_weight<T>(conv, weight, [&](const T* ordered) {
      passes.forward(static_cast<const T*>(x), ordered, static_cast<const T*>(bias), static_cast<T*>(y));
    });
  });
}

void input_gradient(const Conv2dCase& conv, const void* dy, const void* weight, void* dx) {
  with_passes(conv, [&]<class T, bool kChannelsLast>(const Passes<T, kChannelsLast>& passes) {
    with_ordered_weight<T>(conv, weight, [&](const T* ordered) {
      passes.input_gradient(static_cast<const T*>(dy), ordered, static_cast<T*>(dx));
    });
  });
}

void weight_gradient(const Conv2dCase& conv, const void* x, const void* dy, void* dweight) {
  with_passes(conv, [&]<class T, bool kChannelsLast>(const Passes<T, kChannelsLast>& passes) {
    const auto* xs = static_cast<const T*>(x);
    const auto* dys = static_cast<const T*>(dy);
    if (conv.weight_channels_last == conv.channels_last) {
      passes.weight_gradient(xs, dys, static_cast<T*>(dweight));
      return;
    }
    const Buffer<T> ordered(conv.weight_numel());
    passes.weight_gradient(xs, dys, ordered.data());
    reorder_weight(conv, ordered.data(), conv.weight_channels_last, static_cast<T*>(dweight));
  });
}

}  // namespace

constinit const Conv2dImplementation conv2d_eigen{.name = "eigen",
                                                  .supports = supports,
                                                  .forward = forward,
                                                  .input_gradient = input_gradient,
                                                  .weight_gradient = weight_gradient};

}  // namespace norma::kernels

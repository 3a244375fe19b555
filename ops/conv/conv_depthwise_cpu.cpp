#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/conv/conv_depthwise_cpu.cpp"
#include "core/simd/foreach_target.h"

#include "core/buffer.h"
#include "core/parallel.h"
#include "core/simd/call.h"
#include "core/simd/memory.h"
#include "ops/conv/channels_last.h"
#include "ops/conv/kernels.h"

#include <algorithm>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::HWY_NAMESPACE {

namespace {

using namespace simd::HWY_NAMESPACE;

// Depthwise convolution with stride 1 on NHWC images: lanes run along channels, and a block of neighbouring outputs of
// one row stays in registers while all weights pass by, so that each value of x is loaded once for up to kw products.
// The kernel's width is known at compile time; there is no padding: columns outside the image are skipped.

/// Convolves images `in` (n, h, w, c) to `out` (n, oh, ow, c). Pixels lie c numbers apart.
struct Plane {
  int64_t n, c, h, w, oh, ow, kh, padding_h, padding_w;
};

/// Calls f(integral_constant length, start) for blocks that cover [0, count), long ones first.
template <class F>
HWY_INLINE void for_each_block(int64_t count, F&& f) {
  int64_t start = 0;
  for (; start + 8 <= count; start += 8) {
    f(std::integral_constant<int, 8>{}, start);
  }
  if (start + 4 <= count) {
    f(std::integral_constant<int, 4>{}, start);
    start += 4;
  }
  if (start + 2 <= count) {
    f(std::integral_constant<int, 2>{}, start);
    start += 2;
  }
  if (start < count) {
    f(std::integral_constant<int, 1>{}, start);
  }
}

/// Channels are cut into blocks of one vector. The last block ends with the last channel, so it may overlap the one
/// before.
template <class T>
struct ChannelBlocks {
  static constexpr int64_t kLanes = kRegisterLanes<T>;
  int64_t channels;

  [[nodiscard]] int64_t count() const { return (channels + kLanes - 1) / kLanes; }
  [[nodiscard]] int64_t start(int64_t block) const { return std::min(block * kLanes, channels - kLanes); }
};

/// Packs weights (c, kh, kw) as (block, kh, kw, lane), turned by half a turn if `flip`.
template <class T>
void pack_weights(int64_t channels, int64_t taps, const T* weight, bool flip, T* packed) {
  const ChannelBlocks<T> blocks{channels};
  for (int64_t block = 0; block < blocks.count(); ++block) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t source = flip ? taps - 1 - tap : tap;
      for (int64_t lane = 0; lane < blocks.kLanes; ++lane) {
        packed[(block * taps + tap) * blocks.kLanes + lane] = weight[(blocks.start(block) + lane) * taps + source];
      }
    }
  }
}

/// out[j] = start + sum over kh, kw of in[oh + kh - padding_h, column + j + kw - padding_w] * weight[kh, kw].
template <class T, int kWidth, int kOutputs>
HWY_INLINE void outputs_block(const Plane& p, const T* in, const T* weight, const Register<T>& start, int64_t oh,
                              int64_t column, T* out) {
  Register<T> sum[kOutputs];
  unroll<kOutputs>([&](auto j) { sum[j] = start; });
  const int64_t first = std::max<int64_t>(0, p.padding_h - oh);
  const int64_t last = std::min(p.kh, p.h + p.padding_h - oh);
  for (int64_t kh = first; kh < last; ++kh) {
    const int64_t row = (oh + kh - p.padding_h) * p.w;
    Register<T> weights[kWidth];
    unroll<kWidth>([&](auto k) { weights[k] = load(weight + (kh * kWidth + k) * kRegisterLanes<T>, OneRegister{}); });
    unroll<kOutputs + kWidth - 1>([&](auto q) NORMA_INLINE {
      const int64_t w = column + q - p.padding_w;
      if (w >= 0 && w < p.w) {
        const Register<T> value = load(in + (row + w) * p.c, OneRegister{});
        unroll<kWidth>([&](auto k) NORMA_INLINE {
          constexpr int kOutput = q - k;
          if constexpr (kOutput >= 0 && kOutput < kOutputs) {
            sum[kOutput] = multiply_add(value, weights[k], sum[kOutput]);
          }
        });
      }
    });
  }
  unroll<kOutputs>([&](auto j) { store(out + j * p.c, sum[j], OneRegister{}); });
}

/// The number of rows of `out` made together: as many as keep their inputs and outputs in the second-level cache,
/// channel block after channel block.
int64_t rows_of_strip(const Plane& p, int64_t element_bytes) {
  constexpr int64_t kStripBytes = 384 * 1024;
  const int64_t width = std::max<int64_t>(p.w, 1);  // an image of no columns has outputs in its padding
  const int64_t rows = kStripBytes / (2 * width * p.c * element_bytes) - p.kh;
  return std::clamp<int64_t>(rows, std::min(p.kh, p.oh), p.oh);
}

/// Convolves all images. bias: c values or nullptr.
template <class T, int kWidth>
void convolve(const Plane& p, const T* in, const T* packed, const T* bias, T* out) {
  const ChannelBlocks<T> blocks{p.c};
  const int64_t strip = rows_of_strip(p, sizeof(T));
  const int64_t strips = (p.oh + strip - 1) / strip;
  parallel_for(0, p.n * strips, /* grain= */ 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t n = i / strips;
      const int64_t oh_begin = i % strips * strip;
      const int64_t oh_end = std::min(p.oh, oh_begin + strip);
      for (int64_t block = 0; block < blocks.count(); ++block) {
        const T* image = in + n * p.h * p.w * p.c + blocks.start(block);
        const T* weight = packed + block * p.kh * kWidth * blocks.kLanes;
        const Register<T> start = bias == nullptr ? Register<T>{} : load(bias + blocks.start(block), OneRegister{});
        for (int64_t oh = oh_begin; oh < oh_end; ++oh) {
          T* row = out + (n * p.oh + oh) * p.ow * p.c + blocks.start(block);
          for_each_block(p.ow, [&](auto length, int64_t column) NORMA_INLINE {
            outputs_block<T, kWidth, length>(p, image, weight, start, oh, column, row + column * p.c);
          });
        }
      }
    }
  });
}

/// sum[k] += sum over j of dy[j] * x[column + j + k - padding_w], for one row of dy and of x.
template <class T, int kWidth, int kOutputs>
HWY_INLINE void weights_block(const Plane& p, const T* x, const T* dy, int64_t column, Register<T> (&sum)[kWidth]) {
  Register<T> gradient[kOutputs];
  unroll<kOutputs>([&](auto j) { gradient[j] = load(dy + (column + j) * p.c, OneRegister{}); });
  unroll<kOutputs + kWidth - 1>([&](auto q) NORMA_INLINE {
    const int64_t w = column + q - p.padding_w;
    if (w >= 0 && w < p.w) {
      const Register<T> value = load(x + w * p.c, OneRegister{});
      unroll<kWidth>([&](auto k) NORMA_INLINE {
        constexpr int kOutput = q - k;
        if constexpr (kOutput >= 0 && kOutput < kOutputs) {
          sum[k] = multiply_add(value, gradient[kOutput], sum[k]);
        }
      });
    }
  });
}

/// Neighbouring rows of dy, or neighbouring whole images, whose products are added up in registers.
struct Run {
  int64_t n_begin, n_end, oh_begin, oh_end;
};

/// Cuts the images into runs of about 256 pixels: short sums round less.
struct Runs {
  int64_t images, rows;      // of one run; the other is 1 or all
  int64_t per_image, count;  // strips of rows in an image; all runs
  const Plane& p;

  explicit Runs(const Plane& plane) : p(plane) {
    constexpr int64_t kPixels = 256;
    rows = std::clamp<int64_t>(kPixels / p.ow, 1, p.oh);
    per_image = (p.oh + rows - 1) / rows;
    images = std::clamp<int64_t>(kPixels / (p.oh * p.ow), 1, p.n);
    count = (p.n + images - 1) / images * per_image;
  }
  [[nodiscard]] Run operator[](int64_t i) const {
    const int64_t n = i / per_image * images;
    const int64_t oh = i % per_image * rows;
    return {n, std::min(p.n, n + images), oh, std::min(p.oh, oh + rows)};
  }
};

/// Adds the products of one run and channel block to `total` (kh, kw, lane).
template <class T, int kWidth>
void weights_of_run(const Plane& p, const Run& run, const T* x, const T* dy, T* total) {
  for (int64_t kh = 0; kh < p.kh; ++kh) {
    Register<T> sum[kWidth];
    unroll<kWidth>([&](auto k) { sum[k] = Register<T>{}; });
    const int64_t oh_begin = std::max(run.oh_begin, p.padding_h - kh);
    const int64_t oh_end = std::min(run.oh_end, p.h + p.padding_h - kh);
    for (int64_t n = run.n_begin; n < run.n_end; ++n) {
      for (int64_t oh = oh_begin; oh < oh_end; ++oh) {
        const T* x_row = x + (n * p.h + oh + kh - p.padding_h) * p.w * p.c;
        const T* dy_row = dy + (n * p.oh + oh) * p.ow * p.c;
        for_each_block(p.ow, [&](auto length, int64_t column)
                                 NORMA_INLINE { weights_block<T, kWidth, length>(p, x_row, dy_row, column, sum); });
      }
    }
    unroll<kWidth>([&](auto k) {
      T* out = total + (kh * kWidth + k) * kRegisterLanes<T>;
      store(out, load(out, OneRegister{}) + sum[k], OneRegister{});
    });
  }
}

template <class T, int kWidth>
void weights_gradient(const Plane& p, const T* x, const T* dy, T* dweight) {
  const ChannelBlocks<T> blocks{p.c};
  const int64_t taps = p.kh * kWidth;
  const int64_t block_size = taps * blocks.kLanes;
  const int64_t part_size = blocks.count() * block_size;
  // The shape alone decides the parts, so that the sum does not depend on the number of threads.
  const Runs runs(p);
  const int64_t parts = std::min<int64_t>(runs.count, 16);
  const Buffer<T> partial(parts * part_size);
  parallel_for(0, parts, /* grain= */ 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      T* total = partial.data() + part * part_size;
      std::fill(total, total + part_size, T(0));
      for (int64_t r = part * runs.count / parts; r < (part + 1) * runs.count / parts; ++r) {
        for (int64_t block = 0; block < blocks.count(); ++block) {
          const int64_t start = blocks.start(block);
          weights_of_run<T, kWidth>(p, runs[r], x + start, dy + start, total + block * block_size);
        }
      }
    }
  });
  for (int64_t block = 0; block < blocks.count(); ++block) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      for (int64_t lane = 0; lane < blocks.kLanes; ++lane) {
        T total = 0;
        for (int64_t part = 0; part < parts; ++part) {
          total += partial.data()[part * part_size + block * block_size + tap * blocks.kLanes + lane];
        }
        dweight[(blocks.start(block) + lane) * taps + tap] = total;
      }
    }
  }
}

/// Calls f(T{}, integral_constant kw).
template <class F>
void dispatch_width(const Conv2dCase& conv, F&& f) {
  dispatch_floating("conv2d", conv.dtype, [&](auto zero) {
    switch (conv.kw) {
      case 3: return f(zero, std::integral_constant<int, 3>{});
      case 5: return f(zero, std::integral_constant<int, 5>{});
      case 7: return f(zero, std::integral_constant<int, 7>{});
      default: fail("conv2d", "depthwise: expected a kernel of width 3, 5 or 7, got {}", conv.kw);
    }
  });
}

Plane plane_of(const Conv2dCase& conv) {
  return {.n = conv.n,
          .c = conv.c,
          .h = conv.h,
          .w = conv.w,
          .oh = conv.oh,
          .ow = conv.ow,
          .kh = conv.kh,
          .padding_h = conv.padding_h,
          .padding_w = conv.padding_w};
}

template <class T>
int64_t packed_size(const Conv2dCase& conv) {
  return ChannelBlocks<T>{conv.c}.count() * kRegisterLanes<T> * conv.kh * conv.kw;
}

}  // namespace

int64_t register_bytes() {
  return HWY_MAX_BYTES;
}

void depthwise_forward(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y,
                       Storage* /* keep */) {
  dispatch_width(conv, [&](auto zero, auto width) {
    using T = decltype(zero);
    const Buffer<T> packed(packed_size<T>(conv));
    pack_weights(conv.c, conv.kh * conv.kw, static_cast<const T*>(weight), /* flip= */ false, packed.data());
    read_channels_last<T>(conv, x, conv.c, conv.h * conv.w, [&](const T* in) {
      write_channels_last<T>(conv, y, conv.c, conv.oh * conv.ow, [&](T* out) {
        convolve<T, width>(plane_of(conv), in, packed.data(), static_cast<const T*>(bias), out);
      });
    });
  });
}

void depthwise_input_gradient(const Conv2dCase& conv, const void* dy, const void* weight, void* dx) {
  dispatch_width(conv, [&](auto zero, auto width) {
    using T = decltype(zero);
    Plane plane = plane_of(conv);
    std::swap(plane.h, plane.oh);
    std::swap(plane.w, plane.ow);
    plane.padding_h = conv.kh - 1 - conv.padding_h;
    plane.padding_w = conv.kw - 1 - conv.padding_w;
    const Buffer<T> packed(packed_size<T>(conv));
    pack_weights(conv.c, conv.kh * conv.kw, static_cast<const T*>(weight), /* flip= */ true, packed.data());
    read_channels_last<T>(conv, dy, conv.c, conv.oh * conv.ow, [&](const T* in) {
      write_channels_last<T>(conv, dx, conv.c, conv.h * conv.w,
                             [&](T* out) { convolve<T, width>(plane, in, packed.data(), /* bias= */ nullptr, out); });
    });
  });
}

void depthwise_weight_gradient(const Conv2dCase& conv, const void* x, const void* dy, void* dweight) {
  dispatch_width(conv, [&](auto zero, auto width) {
    using T = decltype(zero);
    read_channels_last<T>(conv, x, conv.c, conv.h * conv.w, [&](const T* in) {
      read_channels_last<T>(conv, dy, conv.c, conv.oh * conv.ow, [&](const T* gradient) {
        weights_gradient<T, width>(plane_of(conv), in, gradient, static_cast<T*>(dweight));
      });
    });
  });
}

}  // namespace norma::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels {

namespace {

bool supports(const Conv2dCase& conv, Conv2dPass) {
  if (conv.dtype != DType::float32 && conv.dtype != DType::float64) {
    return false;
  }
  const int64_t lanes = NORMA_SIMD_CALL(register_bytes)() / static_cast<int64_t>(size_of(conv.dtype));
  // The input gradient is a convolution of dy with padding k - 1 - padding, which must not be negative.
  return conv.groups == conv.c && conv.o == conv.c && conv.c >= lanes &&
         (conv.kw == 3 || conv.kw == 5 || conv.kw == 7) && conv.stride_h == 1 && conv.stride_w == 1 &&
         conv.dilation_h == 1 && conv.dilation_w == 1 && conv.padding_h < conv.kh && conv.padding_w < conv.kw;
}

}  // namespace

constinit const Conv2dImplementation conv2d_depthwise{.name = "depthwise",
                                                      .supports = supports,
                                                      .forward = NORMA_SIMD_CALL(depthwise_forward),
                                                      .input_gradient = NORMA_SIMD_CALL(depthwise_input_gradient),
                                                      .weight_gradient = NORMA_SIMD_CALL(depthwise_weight_gradient)};

}  // namespace norma::kernels
#endif

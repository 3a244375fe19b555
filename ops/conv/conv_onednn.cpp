#include "base/error.h"
#include "core/buffer.h"
#include "core/parallel.h"
#include "ops/conv/kernels.h"
#include "ops/libraries/onednn/isa.h"
#include "ops/libraries/onednn/primitives.h"
#include "ops/matmul/kernels.h"

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string_view>
#include <tuple>

namespace norma::kernels {

namespace {

using dnnl::memory;
using Tag = memory::format_tag;

// --- products over pixels -------------------------------------------------------------------------------------------

// A 1x1 convolution of NHWC images is a matrix product over the pixels that it reads. oneDNN does the product as fast
// as the convolution or faster (by 1.3 to 1.6 times on small maps). If a stride leaves pixels out, the others are
// copied together first. That is still faster, and avoids a fault of oneDNN's strided 1x1 kernel.

/// True iff the convolution is such a product, NHWC with one group, a 1x1 kernel and no padding, and is faster so: in
/// float32, and in bfloat16 with AVX512_BF16 or AMX.
bool is_product(const Conv2dCase& conv) {
  const auto multiplies_bfloat16 = [] {
    const std::string_view instructions = onednn::bfloat16_instructions();
    return instructions == "AMX" || instructions == "AVX512_BF16";
  };
  const bool faster = conv.dtype == DType::float32 || (conv.dtype == DType::bfloat16 && multiplies_bfloat16());
  return faster && conv.channels_last && conv.groups == 1 && conv.kh == 1 && conv.kw == 1 && conv.padding_h == 0 &&
         conv.padding_w == 0;
}

bool strided(const Conv2dCase& conv) {
  return conv.stride_h > 1 || conv.stride_w > 1;
}

int64_t pixels(const Conv2dCase& conv) {
  return conv.n * conv.oh * conv.ow;
}

/// Calls f(row of y, row of x) for each row of pixels that the convolution reads, in parallel.
template <class F>
void for_each_row(const Conv2dCase& conv, F&& f) {
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / (conv.ow * conv.c));
  parallel_for(0, conv.n * conv.oh, grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      f(row, row / conv.oh * conv.h + row % conv.oh * conv.stride_h);
    }
  });
}

int64_t pixel_bytes(const Conv2dCase& conv) {
  return conv.c * static_cast<int64_t>(size_of(conv.dtype));
}

/// Copies the pixels of x that the convolution reads, one after the other.
void gather(const Conv2dCase& conv, const std::byte* x, std::byte* met) {
  const int64_t bytes = pixel_bytes(conv);
  for_each_row(conv, [&](int64_t row, int64_t x_row) {
    for (int64_t j = 0; j < conv.ow; ++j) {
      std::copy_n(x + (x_row * conv.w + j * conv.stride_w) * bytes, bytes, met + (row * conv.ow + j) * bytes);
    }
  });
}

/// The reverse of gather(): dx is 0 at all other pixels.
void scatter(const Conv2dCase& conv, const std::byte* met, std::byte* dx) {
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / (conv.w * conv.c));
  const int64_t bytes = pixel_bytes(conv);
  parallel_for(0, conv.n * conv.h, grain, [&](int64_t begin, int64_t end) {
    for (int64_t x_row = begin; x_row < end; ++x_row) {
      const int64_t i = x_row % conv.h;
      std::byte* to = dx + x_row * conv.w * bytes;
      if (i % conv.stride_h != 0 || i / conv.stride_h >= conv.oh) {
        std::fill_n(to, conv.w * bytes, std::byte{0});
        continue;
      }
      const std::byte* from = met + (x_row / conv.h * conv.oh + i / conv.stride_h) * conv.ow * bytes;
      for (int64_t j = 0; j < conv.w; ++j, to += bytes) {
        if (j % conv.stride_w == 0 && j / conv.stride_w < conv.ow) {
          std::copy_n(from + j / conv.stride_w * bytes, bytes, to);
        } else {
          std::fill_n(to, bytes, std::byte{0});
        }
      }
    }
  });
}

/// Calls f with x (pixels, c): x itself, or the pixels of it that are read.
template <class F>
void with_met_pixels(const Conv2dCase& conv, const void* x, F&& f) {
  if (!strided(conv)) {
    f(x);
    return;
  }
  const Buffer<std::byte> met(pixels(conv) * pixel_bytes(conv));
  gather(conv, static_cast<const std::byte*>(x), met.data());
  f(static_cast<const void*>(met.data()));
}

/// y (pixels, o) = x (pixels, c) weightᵀ
bool product_forward(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y,
                     const Epilogue& epilogue, Storage* keep) {
  const MatmulCase product = dense_product(conv.dtype, pixels(conv), conv.o, conv.c, /* a_turned= */ false,
                                           /* b_turned= */ true);
  bool done = false;
  with_met_pixels(conv, x, [&](const void* met) {
    done = matmul_onednn->multiply_act(product, met, weight, bias, y, epilogue, keep);
  });
  return done;
}

/// dx = dy weight
void product_input_gradient(const Conv2dCase& conv, const void* dy, const void* weight, void* dx) {
  const MatmulCase product = dense_product(conv.dtype, pixels(conv), conv.c, conv.o);
  if (!strided(conv)) {
    matmul_onednn->multiply(product, dy, weight, /* bias= */ nullptr, dx, /* keep= */ nullptr);
    return;
  }
  const Buffer<std::byte> met(pixels(conv) * pixel_bytes(conv));
  matmul_onednn->multiply(product, dy, weight, /* bias= */ nullptr, met.data(), /* keep= */ nullptr);
  scatter(conv, met.data(), static_cast<std::byte*>(dx));
}

/// dweight = dyᵀ x
void product_weight_gradient(const Conv2dCase& conv, const void* x, const void* dy, void* dweight) {
  const MatmulCase product = dense_product(conv.dtype, conv.o, conv.c, pixels(conv), /* a_turned= */ true);
  with_met_pixels(conv, x, [&](const void* met) {
    matmul_onednn->multiply(product, dy, met, /* bias= */ nullptr, dweight, /* keep= */ nullptr);
  });
}

// --- primitives of convolutions -------------------------------------------------------------------------------------

struct Layouts {
  memory::desc src, weights, bias, dst;
};

Layouts make_layouts(const Conv2dCase& conv, bool has_bias, Tag activations, Tag weights) {
  const auto type = onednn::data_type(conv.dtype);
  const memory::dims weight_dims =
      conv.groups == 1 ? memory::dims{conv.o, conv.c, conv.kh, conv.kw}
                       : memory::dims{conv.groups, conv.o / conv.groups, conv.c / conv.groups, conv.kh, conv.kw};
  return {.src = memory::desc({conv.n, conv.c, conv.h, conv.w}, type, activations),
          .weights = memory::desc(weight_dims, type, weights),
          .bias = has_bias ? memory::desc({conv.o}, type, Tag::x) : memory::desc(),
          .dst = memory::desc({conv.n, conv.o, conv.oh, conv.ow}, type, activations)};
}

/// The layouts of the caller's memory.
Layouts caller_layouts(const Conv2dCase& conv, bool has_bias) {
  const Tag plain = conv.weight_channels_last ? Tag::ohwi : Tag::oihw;
  const Tag grouped = conv.weight_channels_last ? Tag::gohwi : Tag::goihw;
  return make_layouts(conv, has_bias, conv.channels_last ? Tag::nhwc : Tag::nchw, conv.groups == 1 ? plain : grouped);
}

/// True iff oneDNN's blocked layout gains more than it costs to reorder NHWC activations to it and back. Measured with
/// two threads at the shapes of ResNet-50 and ConvNeXt-T: 2 times on maps of 4x4, 1.05 to 1.3 times for gradients.
bool prefers_blocked(const Conv2dCase& conv, Conv2dPass pass) {
  constexpr int64_t kTinyMap = 4 * 4;
  constexpr int64_t kSmallMap = 14 * 14;
  constexpr int64_t kLanes = 16;
  if (conv.groups != 1 || conv.kh * conv.kw == 1) {
    return false;
  }
  const bool strided = conv.stride_h > 1 || conv.stride_w > 1;
  const int64_t map = conv.oh * conv.ow;
  switch (pass) {
    case Conv2dPass::forward: return map <= kTinyMap;
    case Conv2dPass::input_gradient: return map <= kSmallMap && !strided;
    case Conv2dPass::weight_gradient: return conv.c >= kLanes && (map <= kSmallMap || strided);
  }
  return false;
}

/// The layouts that the primitive is offered. Plain NHWC activations mostly stay as they are (as fast as blocked ones,
/// and nothing to reorder); oneDNN may choose the layout of weights, and of NCHW activations.
Layouts offered_layouts(const Conv2dCase& conv, Conv2dPass pass, bool has_bias) {
  const bool plain = conv.channels_last && !prefers_blocked(conv, pass);
  return make_layouts(conv, has_bias, plain ? Tag::nhwc : Tag::any, Tag::any);
}

std::unique_ptr<onednn::Plan> make_plan(const Conv2dCase& conv, Conv2dPass pass, bool has_bias,
                                        const Epilogue& epilogue) {
  const Layouts caller = caller_layouts(conv, has_bias);
  const Layouts offered = offered_layouts(conv, pass, has_bias);
  const onednn::ConvolutionGeometry geometry{.stride = {conv.stride_h, conv.stride_w},
                                             .dilation = {conv.dilation_h - 1, conv.dilation_w - 1},
                                             .padding = {conv.padding_h, conv.padding_w}};
  const auto forward =
      onednn::convolution_forward(dnnl::prop_kind::forward_training, offered.src, offered.weights, offered.bias,
                                  offered.dst, geometry, onednn::post_ops(epilogue, caller.dst));
  // oneDNN 2.6's convolution by a matrix product adds a residual wrongly.
  if (epilogue.residual != nullptr &&
      std::string_view(forward.impl_info_str()).find("gemm") != std::string_view::npos) {
    return nullptr;
  }
  switch (pass) {
    case Conv2dPass::forward: {
      auto plan = std::make_unique<onednn::Plan>(dnnl::convolution_forward(forward), forward.scratchpad_desc());
      plan->add_input(DNNL_ARG_SRC, caller.src, forward.src_desc());
      plan->add_input(DNNL_ARG_WEIGHTS, caller.weights, forward.weights_desc());
      plan->add_output(DNNL_ARG_DST, caller.dst, forward.dst_desc());
      if (has_bias) {
        plan->add_input(DNNL_ARG_BIAS, caller.bias, forward.bias_desc());
      }
      if (epilogue.residual != nullptr) {
        plan->add_input(onednn::residual_argument(epilogue), caller.dst, caller.dst);
      }
      return plan;
    }
    case Conv2dPass::input_gradient: {
      const auto backward =
          onednn::convolution_backward_data(offered.src, offered.weights, offered.dst, geometry, forward);
      auto plan = std::make_unique<onednn::Plan>(dnnl::convolution_backward_data(backward), backward.scratchpad_desc());
      plan->add_input(DNNL_ARG_DIFF_DST, caller.dst, backward.diff_dst_desc());
      plan->add_input(DNNL_ARG_WEIGHTS, caller.weights, backward.weights_desc());
      plan->add_output(DNNL_ARG_DIFF_SRC, caller.src, backward.diff_src_desc());
      return plan;
    }
    case Conv2dPass::weight_gradient: {
      const auto backward =
          onednn::convolution_backward_weights(offered.src, offered.weights, offered.dst, geometry, forward);
      auto plan =
          std::make_unique<onednn::Plan>(dnnl::convolution_backward_weights(backward), backward.scratchpad_desc());
      plan->add_input(DNNL_ARG_SRC, caller.src, backward.src_desc());
      plan->add_input(DNNL_ARG_DIFF_DST, caller.dst, backward.diff_dst_desc());
      plan->add_output(DNNL_ARG_DIFF_WEIGHTS, caller.weights, backward.diff_weights_desc());
      return plan;
    }
  }
  fail("conv2d", "unknown pass {}", static_cast<int>(pass));
}

/// Runs with the pointers in the order in which make_plan declares the operands. `keep`: see
/// Conv2dImplementation::forward. Returns false if oneDNN has no primitive with such an epilogue.
bool execute(const Conv2dCase& conv, Conv2dPass pass, bool has_bias, std::initializer_list<const void*> pointers,
             const Epilogue& epilogue, Storage* keep) {
  // A primitive is made for a number of threads, so that is part of the key.
  using Key = std::tuple<Conv2dCase, Conv2dPass, bool, Epilogue::Parts, int>;
  thread_local onednn::Plans<Key> plans;
  return plans.execute(
      "conv2d", Key(conv, pass, has_bias, epilogue.parts(), num_threads()),
      [&] { return make_plan(conv, pass, has_bias, epilogue); }, pointers, keep);
}

/// Runs a gradient. Throws Error if oneDNN does not have it.
void execute_gradient(const Conv2dCase& conv, Conv2dPass pass, std::initializer_list<const void*> pointers) {
  check(execute(conv, pass, /* has_bias= */ false, pointers, /* epilogue= */ {}, /* keep= */ nullptr), "conv2d",
        "oneDNN: has no primitive for this convolution");
}

/// oneDNN's kernels compute places along an axis in int32.
bool fits_int32(const Conv2dCase& conv) {
  const auto fits = [](int64_t size, int64_t padding, int64_t stride, int64_t dilation) {
    return std::max({size + 2 * padding, stride, dilation}) <= std::numeric_limits<int32_t>::max();
  };
  return fits(conv.h, conv.padding_h, conv.stride_h, conv.dilation_h) &&
         fits(conv.w, conv.padding_w, conv.stride_w, conv.dilation_w);
}

bool supports(const Conv2dCase& conv, Conv2dPass pass) {
  if (!onednn::does_dtype(conv.dtype) || !fits_int32(conv)) {
    return false;
  }
  // oneDNN's weight gradient of depthwise convolutions in bfloat16 takes ten times as long as ours in float32.
  if (conv.dtype == DType::bfloat16 && pass == Conv2dPass::weight_gradient && conv.groups > 1 &&
      conv.groups == conv.c) {
    return false;
  }
  if (pass != Conv2dPass::weight_gradient || is_product(conv)) {
    return true;
  }
  // oneDNN's weight gradient in bfloat16 (2.6.3 and 3.7.2) is not written in places where the stride exceeds the width.
  const bool leaves_places = conv.dtype == DType::bfloat16 && conv.w < conv.stride_w;
  // oneDNN (2.6.3, and still in 3.x: uxlfoundation/oneDNN#6035) writes outside its workspace in the weight gradient of
  // strided 1x1 convolutions with fewer channels than lanes.
  const bool writes_outside =
      conv.kh == 1 && conv.kw == 1 && (conv.stride_h > 1 || conv.stride_w > 1) && conv.c / conv.groups < 16;
  return !leaves_places && !writes_outside;
}

bool forward_act(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y,
                 const Epilogue& epilogue, Storage* keep) {
  if (is_product(conv)) {
    return product_forward(conv, x, weight, bias, y, epilogue, keep);
  }
  if (epilogue.residual != nullptr && !(conv.channels_last && !prefers_blocked(conv, Conv2dPass::forward))) {
    return false;  // the residual does not lie as oneDNN's result does
  }
  return execute(conv, Conv2dPass::forward, bias != nullptr, {x, weight, y, bias, epilogue.residual}, epilogue, keep);
}

void forward(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y, Storage* keep) {
  check(forward_act(conv, x, weight, bias, y, /* epilogue= */ {}, keep), "conv2d",
        "oneDNN: has no primitive for this convolution");
}

void input_gradient(const Conv2dCase& conv, const void* dy, const void* weight, void* dx) {
  is_product(conv) ? product_input_gradient(conv, dy, weight, dx)
                   : execute_gradient(conv, Conv2dPass::input_gradient, {dy, weight, dx});
}

void weight_gradient(const Conv2dCase& conv, const void* x, const void* dy, void* dweight) {
  is_product(conv) ? product_weight_gradient(conv, x, dy, dweight)
                   : execute_gradient(conv, Conv2dPass::weight_gradient, {x, dy, dweight});
}

constexpr Conv2dImplementation kImplementation{.name = "onednn",
                                               .supports = supports,
                                               .forward = forward,
                                               .input_gradient = input_gradient,
                                               .weight_gradient = weight_gradient,
                                               .forward_act = forward_act};

}  // namespace

constinit const Conv2dImplementation* const conv2d_onednn = &kImplementation;

}  // namespace norma::kernels

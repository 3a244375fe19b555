#include "base/error.h"
#include "core/parallel.h"
#include "ops/conv/kernels.h"
#include "ops/conv/pixel_product.h"
#include "ops/libraries/onednn/primitives.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <tuple>

namespace norma::kernels {

namespace {

using dnnl::memory;
using Tag = memory::format_tag;

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
bool execute(const Conv2dCase& conv, Conv2dPass pass, bool has_bias, std::span<void* const> pointers,
             const Epilogue& epilogue, Storage* keep) {
  // A primitive is made for a number of threads, so that is part of the key.
  using Key = std::tuple<Conv2dCase, Conv2dPass, bool, Epilogue::Parts, int>;
  thread_local onednn::Plans<Key> plans;
  const Key key(conv, pass, has_bias, epilogue.parts(), num_threads());
  try {
    onednn::Plan* const plan = plans.find(key, [&] { return make_plan(conv, pass, has_bias, epilogue); });
    if (plan != nullptr) {
      plan->execute(pointers, keep);
    }
    return plan != nullptr;
  } catch (const dnnl::error& error) {
    onednn::fail_with("conv2d", error);
  }
}

/// Runs a convolution without an epilogue. Throws Error if oneDNN does not have it.
void execute_plain(const Conv2dCase& conv, Conv2dPass pass, bool has_bias, std::span<void* const> pointers,
                   Storage* keep = nullptr) {
  check(execute(conv, pass, has_bias, pointers, /* epilogue= */ {}, keep), "conv2d",
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
  if (pass != Conv2dPass::weight_gradient || pixel_product::serves(conv)) {
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

void* writable(const void* pointer) {
  return const_cast<void*>(pointer);
}  // oneDNN's handles are not const

void forward(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y, Storage* keep) {
  if (pixel_product::serves(conv)) {
    pixel_product::forward(conv, x, weight, bias, y, keep);
    return;
  }
  const std::array<void*, 4> pointers{writable(x), writable(weight), y, writable(bias)};
  execute_plain(conv, Conv2dPass::forward, bias != nullptr, std::span(pointers).first(bias == nullptr ? 3 : 4), keep);
}

bool forward_act(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y,
                 const Epilogue& epilogue, Storage* keep) {
  if (pixel_product::serves(conv)) {
    return pixel_product::forward_act(conv, x, weight, bias, y, epilogue, keep);
  }
  if (epilogue.residual != nullptr && !(conv.channels_last && !prefers_blocked(conv, Conv2dPass::forward))) {
    return false;  // the residual does not lie as oneDNN's result does
  }
  std::array<void*, 5> pointers{writable(x), writable(weight), y};
  size_t count = 3;
  for (const void* optional : {bias, epilogue.residual}) {
    if (optional != nullptr) {
      pointers[count++] = writable(optional);
    }
  }
  return execute(conv, Conv2dPass::forward, bias != nullptr, std::span(pointers).first(count), epilogue, keep);
}

void input_gradient(const Conv2dCase& conv, const void* dy, const void* weight, void* dx) {
  if (pixel_product::serves(conv)) {
    pixel_product::input_gradient(conv, dy, weight, dx);
    return;
  }
  execute_plain(conv, Conv2dPass::input_gradient, false, std::array{writable(dy), writable(weight), dx});
}

void weight_gradient(const Conv2dCase& conv, const void* x, const void* dy, void* dweight) {
  if (pixel_product::serves(conv)) {
    pixel_product::weight_gradient(conv, x, dy, dweight);
    return;
  }
  execute_plain(conv, Conv2dPass::weight_gradient, false, std::array{writable(x), writable(dy), dweight});
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

#include "core/factory.h"
#include "lab/bench/floor.h"
#include "ops/libraries/onednn/primitives.h"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

namespace norma::lab::bench {

namespace {

using dnnl::memory;
using kernels::Conv2dCall;
using kernels::Conv2dCase;
using kernels::Conv2dPass;
using kernels::MatmulCase;
using Tag = memory::format_tag;

std::optional<memory::data_type> data_type(DType dtype) {
  switch (dtype) {
    case DType::float32: return memory::data_type::f32;
    case DType::bfloat16: return memory::data_type::bf16;
    default: return std::nullopt;
  }
}

/// An operand of a primitive, in one of the shared memories or in its own.
struct Operand {
  int argument;
  memory::desc desc;
  void* FloorMemory::*shared = nullptr;  ///< null: weights, which stay where they are
};

/// A primitive whose operands are already in the layout that it wants.
FloorCandidate candidate(const std::string& name, const dnnl::primitive& primitive, const memory::desc& scratchpad,
                         const std::vector<Operand>& operands) {
  FloorCandidate result{.name = name};
  std::unordered_map<int, memory> arguments;
  std::vector<std::pair<memory, void * FloorMemory::*>> shared;
  std::vector<Tensor> kept;
  const auto own = [&](const memory::desc& desc) {
    kept.push_back(ones({static_cast<int64_t>(desc.get_size() / 4 + 1)}, {.device = kCpu}));
    return memory(desc, onednn::engine(), kept.back().raw_data());
  };
  for (const Operand& operand : operands) {
    if (operand.shared == nullptr) {
      arguments[operand.argument] = own(operand.desc);
      continue;
    }
    const memory object(operand.desc, onednn::engine(), nullptr);
    arguments[operand.argument] = object;
    shared.emplace_back(object, operand.shared);
    size_t& bytes = operand.shared == &FloorMemory::a   ? result.bytes_a
                    : operand.shared == &FloorMemory::b ? result.bytes_b
                                                        : result.bytes_c;
    bytes = std::max(bytes, operand.desc.get_size());
  }
  arguments[DNNL_ARG_SCRATCHPAD] = own(scratchpad);
  dnnl::stream stream(onednn::engine());
  result.run = [primitive, arguments, shared, kept, stream](const FloorMemory& memories) mutable {
    for (auto& [object, place] : shared) {
      object.set_data_handle(memories.*place);
    }
    primitive.execute(stream, arguments);
    stream.wait();
  };
  return result;
}

/// A convolution whose operands all have this layout; weights in any layout.
FloorCandidate convolution(const std::string& name, const Conv2dCall& call, memory::data_type type, Tag activations) {
  const Conv2dCase& conv = call.conv;
  const memory::dims weight_dims =
      conv.groups == 1 ? memory::dims{conv.o, conv.c, conv.kh, conv.kw}
                       : memory::dims{conv.groups, conv.o / conv.groups, conv.c / conv.groups, conv.kh, conv.kw};
  const memory::desc src({conv.n, conv.c, conv.h, conv.w}, type, activations);
  const memory::desc dst({conv.n, conv.o, conv.oh, conv.ow}, type, activations);
  const memory::desc weights(weight_dims, type, Tag::any);
  const onednn::ConvolutionGeometry geometry{.stride = {conv.stride_h, conv.stride_w},
                                             .dilation = {conv.dilation_h - 1, conv.dilation_w - 1},
                                             .padding = {conv.padding_h, conv.padding_w}};
  const auto forward =
      onednn::convolution_forward(dnnl::prop_kind::forward_training, src, weights, memory::desc(), dst, geometry);
  switch (call.pass) {
    case Conv2dPass::forward:
      return candidate(name, dnnl::convolution_forward(forward), forward.scratchpad_desc(),
                       {{DNNL_ARG_SRC, forward.src_desc(), &FloorMemory::a},
                        {DNNL_ARG_WEIGHTS, forward.weights_desc()},
                        {DNNL_ARG_DST, forward.dst_desc(), &FloorMemory::c}});
    case Conv2dPass::input_gradient: {
      const auto gradient = onednn::convolution_backward_data(src, weights, dst, geometry, forward);
      return candidate(name, dnnl::convolution_backward_data(gradient), gradient.scratchpad_desc(),
                       {{DNNL_ARG_DIFF_DST, gradient.diff_dst_desc(), &FloorMemory::a},
                        {DNNL_ARG_WEIGHTS, gradient.weights_desc()},
                        {DNNL_ARG_DIFF_SRC, gradient.diff_src_desc(), &FloorMemory::c}});
    }
    default: {
      const auto gradient = onednn::convolution_backward_weights(src, weights, dst, geometry, forward);
      return candidate(name, dnnl::convolution_backward_weights(gradient), gradient.scratchpad_desc(),
                       {{DNNL_ARG_SRC, gradient.src_desc(), &FloorMemory::a},
                        {DNNL_ARG_DIFF_DST, gradient.diff_dst_desc(), &FloorMemory::b},
                        {DNNL_ARG_DIFF_WEIGHTS, gradient.diff_weights_desc(), &FloorMemory::c}});
    }
  }
}

/// c (m, n) = a (m, k) b (k, n). With `weights`, b has been reordered before.
FloorCandidate product(const MatmulCase& p, memory::data_type type, bool weights) {
  const auto matrices = [&](int64_t batch_stride, int64_t rows, int64_t columns, int64_t row, int64_t column) {
    if (p.batch == 1) {
      return memory::desc({rows, columns}, type, memory::dims{row, column});
    }
    const bool repeated = batch_stride == 0;
    return memory::desc({repeated ? 1 : p.batch, rows, columns}, type,
                        memory::dims{repeated ? rows * columns : batch_stride, row, column});
  };
  const memory::desc b =
      weights ? memory::desc({p.k, p.n}, type, Tag::any) : matrices(p.b_batch, p.k, p.n, p.b_row, p.b_column);
  const auto descriptor = onednn::matmul(matrices(p.a_batch, p.m, p.k, p.a_row, p.a_column), b, memory::desc(),
                                         matrices(p.c_batch, p.m, p.n, p.c_row, 1));
  return candidate("matmul", dnnl::matmul(descriptor), descriptor.scratchpad_desc(),
                   {{DNNL_ARG_SRC, descriptor.src_desc(), &FloorMemory::a},
                    {DNNL_ARG_WEIGHTS, descriptor.weights_desc(), weights ? nullptr : &FloorMemory::b},
                    {DNNL_ARG_DST, descriptor.dst_desc(), &FloorMemory::c}});
}

/// True iff the convolution is a product of all pixels with the weight.
bool is_product(const Conv2dCase& conv) {
  return conv.groups == 1 && conv.kh == 1 && conv.kw == 1 && conv.stride_h == 1 && conv.stride_w == 1 &&
         conv.padding_h == 0 && conv.padding_w == 0;
}

/// The convolution as a product of NHWC images; see is_product().
MatmulCase product_of(const Conv2dCall& call) {
  const Conv2dCase& conv = call.conv;
  const int64_t pixels = conv.n * conv.h * conv.w;
  const auto product = [&](int64_t m, int64_t n, int64_t k, std::array<int64_t, 2> a, std::array<int64_t, 2> b) {
    MatmulCase p{.dtype = conv.dtype, .m = m, .n = n, .k = k, .c_row = n};
    std::tie(p.a_row, p.a_column, p.b_row, p.b_column) = std::tie(a[0], a[1], b[0], b[1]);
    return p;
  };
  switch (call.pass) {
    case Conv2dPass::forward: return product(pixels, conv.o, conv.c, {conv.c, 1}, {1, conv.c});
    case Conv2dPass::input_gradient: return product(pixels, conv.c, conv.o, {conv.o, 1}, {conv.c, 1});
    default: return product(conv.o, conv.c, pixels, {1, conv.o}, {conv.c, 1});
  }
}

/// True iff the left operand is read transposed, as in the gradient of a weight: dyᵀ x.
bool is_weight_gradient(const MatmulCase& p) {
  return p.a_row == 1 && p.a_column > 1;
}

/// A product as a 1x1 convolution of images with a limited number of pixels in a row.
Conv2dCall convolution_of(const MatmulCase& p) {
  constexpr int64_t kWidest = 64;
  const bool gradient = is_weight_gradient(p);
  const int64_t rows = gradient ? p.k : p.m;
  int64_t width = std::min(kWidest, rows);
  while (rows % width != 0) {
    --width;
  }
  Conv2dCase conv{.dtype = p.dtype, .channels_last = true, .n = 1, .h = rows / width, .w = width, .kh = 1, .kw = 1};
  conv.c = gradient ? p.n : p.k;
  conv.o = gradient ? p.m : p.n;
  conv.oh = conv.h;
  conv.ow = conv.w;
  return {conv, gradient ? Conv2dPass::weight_gradient : Conv2dPass::forward};
}

/// Calls make() unless oneDNN has no such primitive.
template <class Make>
void add(std::vector<FloorCandidate>& candidates, Make&& make) {
  try {
    candidates.push_back(make());
  } catch (const dnnl::error& error) {
    if (error.status != dnnl_unimplemented) {
      fail("floor", "oneDNN: {}", error.what());
    }
  }
}

/// True for weight gradients of strided 1x1 convolutions with fewer channels than lanes: there oneDNN writes outside
/// its workspace (uxlfoundation/oneDNN#6035).
bool writes_outside(const Conv2dCall& call) {
  const Conv2dCase& conv = call.conv;
  return call.pass == Conv2dPass::weight_gradient && conv.kh == 1 && conv.kw == 1 &&
         (conv.stride_h > 1 || conv.stride_w > 1) && conv.c / conv.groups < 16;
}

std::vector<FloorCandidate> candidates_of(const Conv2dCall& call) {
  std::vector<FloorCandidate> candidates;
  const auto type = data_type(call.conv.dtype);
  if (!type || writes_outside(call)) {
    return candidates;
  }
  add(candidates, [&] { return convolution("nhwc", call, *type, Tag::nhwc); });
  add(candidates, [&] { return convolution("blocked", call, *type, Tag::any); });
  if (is_product(call.conv)) {
    add(candidates, [&] { return product(product_of(call), *type, call.pass != Conv2dPass::weight_gradient); });
  }
  return candidates;
}

std::vector<FloorCandidate> candidates_of(const MatmulCase& p) {
  std::vector<FloorCandidate> candidates;
  const auto type = data_type(p.dtype);
  if (!type) {
    return candidates;
  }
  const bool flat = p.batch == 1;
  add(candidates, [&] { return product(p, *type, flat && !is_weight_gradient(p)); });
  if (flat) {
    add(candidates, [&] { return convolution("convolution", convolution_of(p), *type, Tag::nhwc); });
  }
  return candidates;
}

}  // namespace

std::vector<FloorCandidate> onednn_candidates(const ProductCall& call) {
  return std::visit([](const auto& plain) { return candidates_of(plain); }, call);
}

}  // namespace norma::lab::bench

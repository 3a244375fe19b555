#include "ops/conv/conv.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/op.h"
#include "ops/conv/kernels.h"
#include "ops/matmul/product.h"
#include "ops/reduce/reduce.h"

#include <fmt/format.h>

#include <algorithm>

namespace norma {

namespace {

using kernels::Conv2dCase;
using kernels::Conv2dPass;

int64_t output_size(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  return (size + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1;
}

void check_options(std::string_view op, const Conv2dOptions& options) {
  check(options.stride.h >= 1 && options.stride.w >= 1, op, "stride: expected values of at least 1, got {}",
        to_string(options.stride));
  check(options.padding.h >= 0 && options.padding.w >= 0, op, "padding: expected values of at least 0, got {}",
        to_string(options.padding));
  check(options.dilation.h >= 1 && options.dilation.w >= 1, op, "dilation: expected values of at least 1, got {}",
        to_string(options.dilation));
  check(options.groups >= 1, op, "groups: expected a value of at least 1, got {}", options.groups);
}

void check_arguments(std::string_view op, const Tensor& x, const Tensor& weight, const Tensor& bias,
                     const Conv2dOptions& options) {
  check_floating(op, "x", x);
  check_rank(op, "x", x, 4);
  check_rank(op, "weight", weight, 4);
  check_dtype(op, "weight", weight, x.dtype());
  check_device(op, "weight", weight, x.device());
  check_options(op, options);
  const int64_t channels = x.size(1);
  const int64_t outputs = weight.size(0);
  const int64_t groups = options.groups;
  check(channels >= 1, op, "x: expected at least 1 channel, got sizes {}", x.sizes());
  check(weight.numel() >= 1, op, "weight: expected no size of 0, got sizes {}", weight.sizes());
  check(channels % groups == 0, op, "groups: expected a divisor of the {} input channels, got {}", channels, groups);
  check(outputs % groups == 0, op, "groups: expected a divisor of the {} output channels, got {}", outputs, groups);
  check(weight.size(1) * groups == channels, op,
        "weight: expected {} input channels per group ({} channels in {} groups), got {} (sizes {})", channels / groups,
        channels, groups, weight.size(1), weight.sizes());
  const auto padded_size = [&](int64_t size, int64_t padding) {
    return checked_add(op, "padding", size, checked_mul(op, "padding", 2, padding));
  };
  const auto reach_of = [&](int64_t kernel, int64_t dilation) {
    return checked_add(op, "dilation", checked_mul(op, "dilation", dilation, kernel - 1), 1);
  };
  const Pair padded(padded_size(x.size(2), options.padding.h), padded_size(x.size(3), options.padding.w));
  const Pair reach(reach_of(weight.size(2), options.dilation.h), reach_of(weight.size(3), options.dilation.w));
  check(reach.h <= padded.h && reach.w <= padded.w, op,
        "weight: expected a kernel no larger than the padded input {}, got {}", to_string(padded), to_string(reach));
  if (bias.defined()) {
    check_like(op, "bias", bias, {outputs}, x);
  }
}

/// True iff a weight of these strides is read as OHWI. If both orders are the same memory, either answer is right.
bool lies_channels_last(const Sizes& sizes, const Strides& strides) {
  return is_channels_last_contiguous(sizes, strides) && !is_contiguous(sizes, strides);
}

MemoryFormat result_format(const Tensor& x, const Tensor& weight) {
  const bool channels_last = x.suggest_memory_format() == MemoryFormat::channels_last ||
                             weight.suggest_memory_format() == MemoryFormat::channels_last;
  return channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous;
}

/// weight itself if kernels can read it, else a contiguous copy.
Tensor readable_weight(const Tensor& weight) {
  return weight.is_contiguous(MemoryFormat::channels_last) ? weight : contiguous_copy(weight);
}

/// The entry of a profile for one pass.
OpWork work_of(std::string_view op, const Conv2dCase& conv, Conv2dPass pass, Device device) {
  return {.op = std::string(op),
          .implementation = std::string(kernels::conv_kernels.table(op, device).choose(conv, pass).name),
          .bytes = kernels::fewest_bytes(conv),
          .flops = kernels::flops(conv),
          .call = kernels::Conv2dCall{conv, pass}};
}

KernelRun<kernels::ConvKernels> run_pass(const Op& op, const Conv2dCase& conv, Conv2dPass pass, Device device) {
  return op.run(kernels::conv_kernels, device, [&] { return work_of(op, conv, pass, device); });
}

/// A convolution of some sizes, and its two gradients, which are ops of their own. All three are linear in each of
/// their two operands, so the gradients of each are the other two, and each can be differentiated any number of times.
struct Convolution {
  Conv2dOptions options;
  MemoryFormat format;  ///< of x and y, and of their gradients
  Sizes x_sizes;
  Sizes weight_sizes;
  Strides weight_strides;  ///< of the gradient of the weight; dense

  Convolution(const Tensor& x, const Tensor& weight, const Conv2dOptions& given)
      : options(given),
        format(result_format(x, weight)),
        x_sizes(x.sizes()),
        weight_sizes(weight.sizes()),
        weight_strides(preserved_strides(weight.sizes(), weight.strides())) {}

  /// The numbers of the kernels, for a weight that lies so.
  [[nodiscard]] Conv2dCase numbers(DType dtype, const Strides& weight_lies) const;
  /// conv2d() without checks.
  Tensor forward(Op& op, const Tensor& x, const Tensor& weight, const Tensor& bias) const;
  [[nodiscard]] Tensor input_gradient(const Tensor& dy, const Tensor& weight) const;
  [[nodiscard]] Tensor weight_gradient(const Tensor& dy, const Tensor& x) const;
};

Tensor bias_gradient(const Tensor& dy, const Conv2dCase& conv, MemoryFormat format, bool create_graph) {
  if (create_graph) {
    return sum(dy, {0, 2, 3});
  }
  Tensor db = zeros({conv.o}, {.dtype = dy.dtype(), .device = dy.device()});
  if (dy.numel() > 0) {
    const Tensor dy_read = contiguous_copy(dy, format);
    Op("conv2d_bias_gradient")
        .run(kernels::conv_kernels, dy_read)
        ->bias_gradient(conv, dy_read.device_pointer(), db.device_pointer());
  }
  return db;
}

}  // namespace

std::string to_string(const Pair& pair) {
  return fmt::format("({}, {})", pair.h, pair.w);
}

Tensor conv2d(const Tensor& input, const Tensor& uncast_weight, const Tensor& uncast_bias,
              const Conv2dOptions& options) {
  Op op(named<"conv2d", CastRule::lower>);
  const Tensor x = op.input("x", input);
  const Tensor weight = op.like(x, uncast_weight);
  const Tensor bias = op.like(x, uncast_bias);
  check_arguments(op, x, weight, bias, options);
  return Convolution(x, weight, options).forward(op, x, weight, bias);
}

namespace {

/// conv2d_act() of checked operands by one kernel; undefined if there is none.
Tensor conv2d_act_in_one(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options,
                         const ActOptions& then) {
  const Convolution convolution(x, weight, options);
  const MemoryFormat format = convolution.format;
  const Tensor x_read = contiguous_copy(x, format);
  const Tensor weight_read = readable_weight(weight);
  const Tensor bias_read = contiguous_copy(bias);
  const Conv2dCase conv = convolution.numbers(x.dtype(), weight_read.strides());
  const Sizes sizes{conv.n, conv.o, conv.oh, conv.ow};
  if (then.residual.defined()) {
    check_like("conv2d_act", "residual", then.residual, sizes, x);
  }
  if (sizes.numel() == 0 ||
      kernels::conv_kernels.table("conv2d", x.device()).choose(conv, Conv2dPass::forward).forward_act == nullptr) {
    return {};
  }
  const Tensor residual = contiguous_copy(then.residual, format);
  const Tensor y = empty(sizes, {.dtype = x.dtype(), .device = x.device(), .format = format});
  auto run = run_pass(Op("conv2d"), conv, Conv2dPass::forward, x.device());
  const bool done =
      run->choose(conv, Conv2dPass::forward)
          .forward_act(conv, x_read.device_pointer(), weight_read.device_pointer(), pointer_or_null(bias_read),
                       y.device_pointer(), {.activation = then.activation, .residual = pointer_or_null(residual)},
                       is_constant_weight(weight) ? weight_read.storage().get() : nullptr);
  if (!done) {
    run.discard();
    return {};
  }
  return y;
}

Conv2dCase Convolution::numbers(DType dtype, const Strides& weight_lies) const {
  Conv2dCase conv;
  conv.dtype = dtype;
  conv.channels_last = format == MemoryFormat::channels_last;
  conv.weight_channels_last = lies_channels_last(weight_sizes, weight_lies);
  conv.n = x_sizes[0];
  conv.c = x_sizes[1];
  conv.h = x_sizes[2];
  conv.w = x_sizes[3];
  conv.o = weight_sizes[0];
  conv.kh = weight_sizes[2];
  conv.kw = weight_sizes[3];
  // A stride beyond the padded input leads out of it, as one of its size does: kernels and libraries see small numbers.
  conv.stride_h = std::min(options.stride.h, std::max<int64_t>(1, conv.h + 2 * options.padding.h));
  conv.stride_w = std::min(options.stride.w, std::max<int64_t>(1, conv.w + 2 * options.padding.w));
  conv.padding_h = options.padding.h;
  conv.padding_w = options.padding.w;
  conv.dilation_h = options.dilation.h;
  conv.dilation_w = options.dilation.w;
  conv.groups = options.groups;
  conv.oh = output_size(conv.h, conv.kh, conv.stride_h, conv.padding_h, conv.dilation_h);
  conv.ow = output_size(conv.w, conv.kw, conv.stride_w, conv.padding_w, conv.dilation_w);
  return conv;
}

Tensor Convolution::forward(Op& op, const Tensor& x, const Tensor& weight, const Tensor& bias) const {
  const Tensor x_read = contiguous_copy(x, format);
  const Tensor weight_read = readable_weight(weight);
  const Tensor bias_read = contiguous_copy(bias);
  const Conv2dCase conv = numbers(x.dtype(), weight_read.strides());
  const Tensor y =
      empty({conv.n, conv.o, conv.oh, conv.ow}, {.dtype = x.dtype(), .device = x.device(), .format = format});
  if (y.numel() > 0) {
    run_pass(op, conv, Conv2dPass::forward, x.device())
        ->choose(conv, Conv2dPass::forward)
        .forward(conv, x_read.device_pointer(), weight_read.device_pointer(), pointer_or_null(bias_read),
                 y.device_pointer(), is_constant_weight(weight) ? weight_read.storage().get() : nullptr);
  }
  // Each operand is needed for the other's gradient only.
  const Tensor x_saved = weight.requires_grad() ? x : Tensor();
  const Tensor weight_saved = x.requires_grad() ? weight : Tensor();
  op.describe({{"stride", Sizes{options.stride.h, options.stride.w}},
               {"padding", Sizes{options.padding.h, options.padding.w}},
               {"dilation", Sizes{options.dilation.h, options.dilation.w}},
               {"groups", options.groups}});
  return op.record({x, weight, bias}, y, {x_saved, weight_saved},
                   [same = *this, conv](const Tensor& dy, const BackwardContext& c) -> Tensors {
                     return {c.needs_grad(0) ? same.input_gradient(dy, c.saved(1)) : Tensor(),
                             c.needs_grad(1) ? same.weight_gradient(dy, c.saved(0)) : Tensor(),
                             c.needs_grad(2) ? bias_gradient(dy, conv, same.format, c.create_graph()) : Tensor()};
                   });
}

Tensor Convolution::input_gradient(const Tensor& dy, const Tensor& weight) const {
  const Op op("conv2d_input_gradient");
  const Tensor dy_read = contiguous_copy(dy, format);
  const Tensor weight_read = readable_weight(weight);
  const Conv2dCase conv = numbers(dy.dtype(), weight_read.strides());
  const Tensor dx = empty(x_sizes, {.dtype = dy.dtype(), .device = dy.device(), .format = format});
  if (dx.numel() > 0) {
    run_pass(op, conv, Conv2dPass::input_gradient, dy.device())
        ->choose(conv, Conv2dPass::input_gradient)
        .input_gradient(conv, dy_read.device_pointer(), weight_read.device_pointer(), dx.device_pointer());
  }
  const Tensor dy_saved = weight.requires_grad() ? dy : Tensor();
  const Tensor weight_saved = dy.requires_grad() ? weight : Tensor();
  return op.record({dy, weight}, dx, {dy_saved, weight_saved},
                   [same = *this](const Tensor& gradient, const BackwardContext& c) -> Tensors {
                     Op again("conv2d");
                     return {c.needs_grad(0) ? same.forward(again, gradient, c.saved(1), {}) : Tensor(),
                             c.needs_grad(1) ? same.weight_gradient(c.saved(0), gradient) : Tensor()};
                   });
}

Tensor Convolution::weight_gradient(const Tensor& dy, const Tensor& x) const {
  const Op op("conv2d_weight_gradient");
  const Tensor dy_read = contiguous_copy(dy, format);
  const Tensor x_read = contiguous_copy(x, format);
  const TensorOptions tensor_options{.dtype = dy.dtype(), .device = dy.device()};
  const Tensor dweight = empty_strided(weight_sizes, weight_strides, tensor_options);
  if (x.numel() == 0) {
    zero_(dweight);
  } else {
    const bool direct = dweight.is_contiguous() || dweight.is_contiguous(MemoryFormat::channels_last);
    const Tensor written = direct ? dweight : empty(weight_sizes, tensor_options);
    const Conv2dCase conv = numbers(dy.dtype(), written.strides());
    run_pass(op, conv, Conv2dPass::weight_gradient, dy.device())
        ->choose(conv, Conv2dPass::weight_gradient)
        .weight_gradient(conv, x_read.device_pointer(), dy_read.device_pointer(), written.device_pointer());
    if (!direct) {
      copy_into(written, dweight);
    }
  }
  const Tensor dy_saved = x.requires_grad() ? dy : Tensor();
  const Tensor x_saved = dy.requires_grad() ? x : Tensor();
  return op.record({dy, x}, dweight, {dy_saved, x_saved},
                   [same = *this](const Tensor& gradient, const BackwardContext& c) -> Tensors {
                     Op again("conv2d");
                     return {c.needs_grad(0) ? same.forward(again, c.saved(1), gradient, {}) : Tensor(),
                             c.needs_grad(1) ? same.input_gradient(c.saved(0), gradient) : Tensor()};
                   });
}

}  // namespace

Tensor conv2d_act(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options,
                  const ActOptions& then) {
  const bool plain = then.activation == Activation::identity && !then.residual.defined();
  if (!plain && !autocast_enabled() && !in_parts({x, weight, bias, then.residual})) {
    check_arguments("conv2d", x, weight, bias, options);
    const Tensor y = x.dtype() == DType::float32 ? conv2d_act_in_one(x, weight, bias, options, then) : Tensor();
    if (y.defined()) {
      return y;
    }
  }
  return activate(conv2d(x, weight, bias, options), then, "conv2d_act");
}

bool conv2d_transposes_contiguous(Device device) {
  return kernels::conv_kernels.table("conv2d", device).transposes_contiguous;
}

std::vector<std::string> conv2d_implementations(Device device) {
  return kernels::conv_kernels.at("conv2d", device)->implementations().names();
}

void set_conv2d_implementation(const std::string& name, Device device) {
  kernels::conv_kernels.at("conv2d", device)->implementations().force(name);
}

std::string conv2d_implementation(Device device) {
  return kernels::conv_kernels.at("conv2d", device)->implementations().chosen();
}

std::vector<std::string> conv2d_modes() {
  return {"fast", "exact"};
}

Conv2dMode conv2d_mode() {
  return static_cast<Conv2dMode>(kernels::conv_cpu.implementations().mode());
}

}  // namespace norma

#include "nn/conv.h"

#include "base/lists.h"
#include "base/nearest_name.h"
#include "core/factory.h"
#include "nn/init.h"
#include "nn/norm/options.h"

namespace norma::nn {

namespace {

bool is_both(const Pair& pair, int64_t value) {
  return pair.h == value && pair.w == value;
}

/// timm's padding.
int64_t symmetric_padding(int64_t kernel, int64_t stride, int64_t dilation) {
  return (stride - 1 + dilation * (kernel - 1)) / 2;
}

template <class Options>
Conv2dOptions convolution_options(const Pair& kernel, const Options& options) {
  const Pair symmetric(symmetric_padding(kernel.h, options.stride.h, options.dilation.h),
                       symmetric_padding(kernel.w, options.stride.w, options.dilation.w));
  return {.stride = options.stride,
          .padding = options.padding.value_or(symmetric),
          .dilation = options.dilation,
          .groups = options.groups,
          .bias = options.bias,
          .initialize = options.initialize};
}

/// StdConv2dOptions or ScaledStdConv2dOptions with the options that a convolution has, too.
template <class Options>
Options standardized(const Conv2dOptions& options) {
  return {.stride = options.stride,
          .padding = options.padding,
          .dilation = options.dilation,
          .groups = options.groups,
          .bias = options.bias,
          .initialize = options.initialize};
}

}  // namespace

ConvolutionModule::ConvolutionModule(std::string layer, int64_t in_channels, int64_t out_channels, Pair kernel,
                                     const Conv2dOptions& options)
    : layer_(std::move(layer)), options_(options) {
  check(in_channels > 0 && out_channels > 0, layer_, "channels: expected positive numbers, got in {}, out {}",
        in_channels, out_channels);
  check(kernel.h > 0 && kernel.w > 0, layer_, "kernel: expected positive sizes, got {}", to_string(kernel));
  check(options.groups > 0 && in_channels % options.groups == 0 && out_channels % options.groups == 0, layer_,
        "groups: expected a divisor of in and out channels, got groups {}, in {}, out {}", options.groups, in_channels,
        out_channels);
  weight_ = register_parameter("weight", zeros({out_channels, in_channels / options.groups, kernel.h, kernel.w}));
  bias_ = register_parameter("bias", options.bias ? zeros({out_channels}) : Tensor());
  if (options.initialize) {
    default_init_(weight_, bias_);
  }
}

norma::Conv2dOptions ConvolutionModule::geometry() const {
  return {
      .stride = options_.stride, .padding = options_.padding, .dilation = options_.dilation, .groups = options_.groups};
}

std::string ConvolutionModule::name() const {
  std::string text =
      fmt::format("{}({}, {}, kernel={}, stride={}", layer_, weight_.size(1) * options_.groups, weight_.size(0),
                  to_string(Pair(weight_.size(2), weight_.size(3))), to_string(options_.stride));
  if (!is_both(options_.padding, 0)) {
    text += ", padding=" + to_string(options_.padding);
  }
  if (!is_both(options_.dilation, 1)) {
    text += ", dilation=" + to_string(options_.dilation);
  }
  if (options_.groups != 1) {
    text += fmt::format(", groups={}", options_.groups);
  }
  return text + (bias_.defined() ? ")" : ", bias=false)");
}

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, Pair kernel, const Conv2dOptions& options)
    : ConvolutionModule("Conv2d", in_channels, out_channels, kernel, options) {}

void ConvolutionModule::set_parameters(const Tensor& weight, const Tensor& bias) {
  check_sizes(layer_, "weight", weight, weight_.sizes());
  if (bias.defined()) {
    check_sizes(layer_, "bias", bias, {weight_.size(0)});
  }
  const bool trained = weight_.requires_grad();
  drop_parameter("weight");
  drop_parameter("bias");
  weight_ = register_parameter("weight", weight);
  bias_ = register_parameter("bias", bias);
  weight_.set_requires_grad(trained);
  if (bias_.defined()) {
    bias_.set_requires_grad(trained);
  }
}

StdConv2d::StdConv2d(int64_t in_channels, int64_t out_channels, Pair kernel, const StdConv2dOptions& options)
    : ConvolutionModule("StdConv2d", in_channels, out_channels, kernel, convolution_options(kernel, options)),
      standardize_({.eps = options.eps, .statistics = options.statistics}) {
  check_eps("StdConv2d", options.eps);
}

Tensor StdConv2d::forward(const Tensor& x) {
  return convolve(x, standardize_weight(weight(), {}, standardize_));
}

ScaledStdConv2d::ScaledStdConv2d(int64_t in_channels, int64_t out_channels, Pair kernel,
                                 const ScaledStdConv2dOptions& options)
    : ConvolutionModule("ScaledStdConv2d", in_channels, out_channels, kernel, convolution_options(kernel, options)),
      standardize_({.eps = options.eps, .statistics = options.statistics, .gamma = options.gamma}) {
  check_eps("ScaledStdConv2d", options.eps);
  gain_ = register_parameter("gain", full({out_channels, 1, 1, 1}, options.gain));
}

Tensor ScaledStdConv2d::forward(const Tensor& x) {
  return convolve(x, standardize_weight(weight(), gain_, standardize_));
}

std::vector<std::string> conv_layer_names() {
  return {"conv", "std_conv", "scaled_std_conv"};
}

void check_conv_layer(const std::string& name) {
  const std::vector<std::string> names = conv_layer_names();
  check(is_in(names, name), "conv_layer", "{}", unknown_name("convolution", name, names));
}

std::shared_ptr<ConvolutionModule> make_conv(const std::string& name, int64_t in_channels, int64_t out_channels,
                                             Pair kernel, const Conv2dOptions& options, double gamma) {
  check_conv_layer(name);
  if (name == "conv") {
    return std::make_shared<Conv2d>(in_channels, out_channels, kernel, options);
  }
  // The layer itself refuses groups < 1.
  check(options.groups < 1 || in_channels / options.groups * kernel.h * kernel.w != 1, "conv_layer",
        "{}: expected more than 1 weight per output channel, got 1", name);
  if (name == "std_conv") {
    return std::make_shared<StdConv2d>(in_channels, out_channels, kernel, standardized<StdConv2dOptions>(options));
  }
  auto scaled = standardized<ScaledStdConv2dOptions>(options);
  scaled.gamma = gamma;
  return std::make_shared<ScaledStdConv2d>(in_channels, out_channels, kernel, scaled);
}

}  // namespace norma::nn

#include "nn/conv.h"

#include "core/factory.h"
#include "nn/init.h"

namespace norma::nn {
namespace {

std::string pair_text(const Pair& pair) {
  return fmt::format("({}, {})", pair.h, pair.w);
}
bool is_both(const Pair& pair, int64_t value) {
  return pair.h == value && pair.w == value;
}

}  // namespace

ConvolutionModule::ConvolutionModule(std::string layer, int64_t in_channels, int64_t out_channels, Pair kernel,
                                     const Conv2dOptions& options)
    : layer_(std::move(layer)), options_(options) {
  check(in_channels > 0 && out_channels > 0, layer_, "channels: expected positive numbers, got in {}, out {}",
        in_channels, out_channels);
  check(kernel.h > 0 && kernel.w > 0, layer_, "kernel: expected positive sizes, got {}", pair_text(kernel));
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
                  pair_text({weight_.size(2), weight_.size(3)}), pair_text(options_.stride));
  if (!is_both(options_.padding, 0)) {
    text += ", padding=" + pair_text(options_.padding);
  }
  if (!is_both(options_.dilation, 1)) {
    text += ", dilation=" + pair_text(options_.dilation);
  }
  if (options_.groups != 1) {
    text += fmt::format(", groups={}", options_.groups);
  }
  return text + (bias_.defined() ? ")" : ", bias=false)");
}

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, Pair kernel, const Conv2dOptions& options)
    : ConvolutionModule("Conv2d", in_channels, out_channels, kernel, options) {}

void ConvolutionModule::set_parameters(const Tensor& weight, const Tensor& bias) {
  check_sizes("Conv2d", "weight", weight, weight_.sizes());
  if (bias.defined()) {
    check_sizes("Conv2d", "bias", bias, {weight_.size(0)});
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

}  // namespace norma::nn

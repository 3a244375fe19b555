#include "nn/conv_factory.h"

#include "core/nearest_name.h"
#include "nn/std_conv.h"

#include <algorithm>

namespace norma::nn {
namespace {

/// StdConv2dOptions or ScaledStdConv2dOptions with the options that a convolution has, too.
template <class Options>
Options standardised(const Conv2dOptions& options) {
  return {.stride = options.stride,
          .padding = options.padding,
          .dilation = options.dilation,
          .groups = options.groups,
          .bias = options.bias,
          .initialize = options.initialize};
}

}  // namespace

std::vector<std::string> conv_layer_names() {
  return {"conv", "std_conv", "scaled_std_conv"};
}

void check_conv_layer(const std::string& name) {
  const std::vector<std::string> names = conv_layer_names();
  check(std::find(names.begin(), names.end(), name) != names.end(), "conv_layer", "{}",
        unknown_name("convolution", name, names));
}

std::shared_ptr<ConvolutionModule> make_conv(const std::string& name, int64_t in_channels, int64_t out_channels,
                                             Pair kernel, const Conv2dOptions& options, double gamma) {
  check_conv_layer(name);
  if (name == "conv") {
    return std::make_shared<Conv2d>(in_channels, out_channels, kernel, options);
  }
  check(in_channels / options.groups * kernel.h * kernel.w != 1, "conv_layer",
        "{}: expected more than 1 weight per output channel, got 1", name);
  if (name == "std_conv") {
    return std::make_shared<StdConv2d>(in_channels, out_channels, kernel, standardised<StdConv2dOptions>(options));
  }
  auto scaled = standardised<ScaledStdConv2dOptions>(options);
  scaled.gamma = gamma;
  return std::make_shared<ScaledStdConv2d>(in_channels, out_channels, kernel, scaled);
}

}  // namespace norma::nn

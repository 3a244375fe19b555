#include "nn/std_conv.h"

#include "core/factory.h"
#include "nn/norm/options.h"

namespace norma::nn {
namespace {

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

}  // namespace

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

}  // namespace norma::nn

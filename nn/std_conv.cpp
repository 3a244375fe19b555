#include "nn/std_conv.h"

#include "core/factory.h"
#include "nn/norm_text.h"

namespace norma::nn {

StdConv2d::StdConv2d(int64_t in_channels, int64_t out_channels, Pair kernel, const StdConv2dOptions& options)
    : ConvolutionModule("StdConv2d", in_channels, out_channels, kernel, options.conv),
      standardize_({.eps = options.eps, .statistics = options.statistics}) {
  check_eps("StdConv2d", options.eps);
}

Tensor StdConv2d::forward(const Tensor& x) {
  return convolve(x, standardize_weight(weight(), {}, standardize_));
}

ScaledStdConv2d::ScaledStdConv2d(int64_t in_channels, int64_t out_channels, Pair kernel,
                                 const ScaledStdConv2dOptions& options)
    : ConvolutionModule("ScaledStdConv2d", in_channels, out_channels, kernel, options.conv),
      standardize_({.eps = options.eps, .statistics = options.statistics, .gamma = options.gamma}) {
  check_eps("ScaledStdConv2d", options.eps);
  gain_ = register_parameter("gain", full({out_channels, 1, 1, 1}, options.gain));
}

Tensor ScaledStdConv2d::forward(const Tensor& x) {
  return convolve(x, standardize_weight(weight(), gain_, standardize_));
}

}  // namespace norma::nn

#pragma once

#include "nn/conv.h"
#include "ops/norm/standardize_weight.h"

#include <optional>

namespace norma::nn {

// Convolutions whose weight is standardised in each forward pass; see standardize_weight(). Names, defaults and start
// values are timm's. Neither is a Conv2d: a factor on the weight has no effect here.

struct StdConv2dOptions {
  Pair stride = 1;
  /// none: (stride - 1 + dilation * (kernel - 1)) / 2, rounded down: odd kernels with stride 1 then keep the size.
  std::optional<Pair> padding = {};
  Pair dilation = 1;
  int64_t groups = 1;
  bool bias = false;
  bool initialize = true;  ///< as in Conv2dOptions
  double eps = StandardizeWeightOptions{}.eps;
  Statistics statistics = Statistics::stable;
};
class StdConv2d : public ConvolutionModule {
 public:
  StdConv2d(int64_t in_channels, int64_t out_channels, Pair kernel, const StdConv2dOptions& options = {});
  Tensor forward(const Tensor& x) override;

 private:
  StandardizeWeightOptions standardize_;
};

struct ScaledStdConv2dOptions {
  Pair stride = 1;
  std::optional<Pair> padding = {};  ///< as in StdConv2dOptions
  Pair dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  bool initialize = true;  ///< as in Conv2dOptions
  double gamma = 1;        ///< for the activation in front: 1.7139588594436646 for relu
  double gain = 1;         ///< start value
  double eps = StandardizeWeightOptions{}.eps;
  Statistics statistics = Statistics::stable;
};
/// StdConv2d with a third parameter, gain of (out, 1, 1, 1).
class ScaledStdConv2d : public ConvolutionModule {
 public:
  ScaledStdConv2d(int64_t in_channels, int64_t out_channels, Pair kernel, const ScaledStdConv2dOptions& options = {});
  Tensor forward(const Tensor& x) override;

 private:
  StandardizeWeightOptions standardize_;
  Tensor gain_;
};

}  // namespace norma::nn

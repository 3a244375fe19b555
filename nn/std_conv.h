#pragma once

#include "nn/conv.h"
#include "ops/norm/standardize_weight.h"

namespace norma::nn {

// Convolutions whose weight is standardised in each forward pass; see standardize_weight(). Names, defaults and start
// values are timm's. Neither is a Conv2d: what multiplies the weight of one has no effect here.

struct StdConv2dOptions {
  Conv2dOptions conv = {.bias = false};
  double eps = 1e-6;
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
  Conv2dOptions conv = {};
  double gamma = 1;  ///< of the activation in front: 1.7139588594436646 for relu
  double gain = 1;   ///< start value
  double eps = 1e-6;
  Statistics statistics = Statistics::stable;
};
/// With a third parameter, gain of (out, 1, 1, 1).
class ScaledStdConv2d : public ConvolutionModule {
 public:
  ScaledStdConv2d(int64_t in_channels, int64_t out_channels, Pair kernel, const ScaledStdConv2dOptions& options = {});
  Tensor forward(const Tensor& x) override;

 private:
  StandardizeWeightOptions standardize_;
  Tensor gain_;
};

}  // namespace norma::nn

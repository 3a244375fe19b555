#pragma once

#include "nn/module.h"
#include "ops/conv/conv.h"

namespace norma::nn {

struct Conv2dOptions {
  Pair stride = 1;
  Pair padding = 0;
  Pair dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  bool initialize = true;  ///< false: zeros, for a caller that sets the values
};

/// The part that the convolutions share: weight (out, in / groups, kernel) and bias (out), initialised as in PyTorch.
/// Throws Error when groups do not divide both numbers of channels.
class ConvolutionModule : public Module {
 public:
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] const Tensor& weight() const { return weight_; }
  [[nodiscard]] const Tensor& bias() const { return bias_; }  ///< may be undefined
  /// Replaces weight and bias by parameters of the same sizes; `bias` may be undefined. Both require a gradient if the
  /// old weight does.
  void set_parameters(const Tensor& weight, const Tensor& bias);

 protected:
  ConvolutionModule(std::string layer, int64_t in_channels, int64_t out_channels, Pair kernel,
                    const Conv2dOptions& options);
  /// conv2d() of x with a weight made from weight(), and the bias.
  [[nodiscard]] Tensor convolve(const Tensor& x, const Tensor& weight) const {
    return conv2d(x, weight, bias_, geometry());
  }
  [[nodiscard]] norma::Conv2dOptions geometry() const;

 private:
  std::string layer_;
  Conv2dOptions options_;
  Tensor weight_;
  Tensor bias_;
};

/// conv2d() with its weight and bias.
class Conv2d : public ConvolutionModule {
 public:
  Conv2d(int64_t in_channels, int64_t out_channels, Pair kernel, const Conv2dOptions& options = {});
  Tensor forward(const Tensor& x) override { return convolve(x, weight()); }
  /// conv2d_act(); runs no hooks.
  Tensor forward_act(const Tensor& x, const ActOptions& then) const {
    return conv2d_act(x, weight(), bias(), geometry(), then);
  }
};

}  // namespace norma::nn

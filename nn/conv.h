#pragma once

#include "nn/module.h"
#include "ops/conv/conv.h"
#include "ops/norm/norm.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace norma::nn {

struct Conv2dOptions {
  Pair stride = 1;
  Pair padding = 0;
  Pair dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  bool initialize = true;  ///< false: zeros, for a caller that sets the values
};

/// The part that the convolutions share: weight (out, in / groups, kernel) and bias (out), initialized as in PyTorch.
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

// Convolutions whose weight is standardized in each forward pass; see standardize_weight(). Names, defaults and start
// values are timm's. Neither derives from Conv2d: standardization takes a factor on the weight away, so that
// fold_batch_norm() cannot use these layers.

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
/// Conv2d with a weight that standardize_weight() standardizes in each forward pass; timm's StdConv2d.
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
  double gamma = 1;        ///< StandardizeWeightOptions::gamma: 1.7139588594436646 after a relu
  double gain = 1;         ///< start value
  double eps = StandardizeWeightOptions{}.eps;
  Statistics statistics = Statistics::stable;
};
/// StdConv2d scaled by gamma / sqrt(fan-in) · gain, with the third parameter gain of (out, 1, 1, 1); timm's
/// ScaledStdConv2d.
class ScaledStdConv2d : public ConvolutionModule {
 public:
  ScaledStdConv2d(int64_t in_channels, int64_t out_channels, Pair kernel, const ScaledStdConv2dOptions& options = {});
  Tensor forward(const Tensor& x) override;

 private:
  StandardizeWeightOptions standardize_;
  Tensor gain_;
};

// Convolutions by name, as on the command line:
//   conv             nn::Conv2d
//   std_conv         nn::StdConv2d, for networks with group norm
//   scaled_std_conv  nn::ScaledStdConv2d, for networks without norms

/// The names of all convolutions.
std::vector<std::string> conv_layer_names();
/// Throws Error for an unknown name, with the nearest known one.
void check_conv_layer(const std::string& name);

/// `gamma`: see ScaledStdConv2dOptions; the other convolutions ignore it. Throws Error for an unknown name, and for a
/// standardized convolution with a single weight per output channel, which would become 0.
std::shared_ptr<ConvolutionModule> make_conv(const std::string& name, int64_t in_channels, int64_t out_channels,
                                             Pair kernel, const Conv2dOptions& options = {}, double gamma = 1);

}  // namespace norma::nn

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

/// conv2d() with its weight (out, in / groups, kernel) and bias (out), initialised as in PyTorch.
/// Throws Error when groups do not divide both numbers of channels.
class Conv2d : public Module {
 public:
  Conv2d(int64_t in_channels, int64_t out_channels, Pair kernel, const Conv2dOptions& options = {});

  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] const Tensor& weight() const { return weight_; }
  [[nodiscard]] const Tensor& bias() const { return bias_; }  ///< may be undefined

 private:
  Conv2dOptions options_;
  Tensor weight_;
  Tensor bias_;
};

}  // namespace norma::nn

#pragma once

#include "nn/module.h"

namespace norma::nn {

struct LinearOptions {
  bool bias = true;
  bool initialize = true;  ///< false: zeros, for a caller that sets the values
};

/// linear() over the last axis: x (…, in) → (…, out). weight (out, in) and bias (out) are initialised as in PyTorch.
class Linear : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, const LinearOptions& options = {});

  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] const Tensor& weight() const { return weight_; }
  [[nodiscard]] const Tensor& bias() const { return bias_; }  ///< may be undefined

 private:
  Tensor weight_;
  Tensor bias_;
};

}  // namespace norma::nn

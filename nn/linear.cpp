#include "nn/linear.h"

#include "core/factory.h"
#include "nn/init.h"
#include "ops/matmul/matmul.h"

namespace norma::nn {

Linear::Linear(int64_t in_features, int64_t out_features, const LinearOptions& options) {
  check(in_features > 0 && out_features > 0, "Linear", "features: expected positive numbers, got in {}, out {}",
        in_features, out_features);
  weight_ = register_parameter("weight", zeros({out_features, in_features}));
  bias_ = register_parameter("bias", options.bias ? zeros({out_features}) : Tensor());
  if (options.initialize) {
    default_init_(weight_, bias_);
  }
}

Tensor Linear::forward(const Tensor& x) {
  return linear(x, weight_, bias_);
}

std::string Linear::name() const {
  return fmt::format("Linear({}, {}{})", weight_.size(1), weight_.size(0), bias_.defined() ? "" : ", bias=false");
}

}  // namespace norma::nn

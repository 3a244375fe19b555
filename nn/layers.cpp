#include "nn/layers.h"

#include "core/factory.h"
#include "nn/init.h"
#include "ops/matmul/matmul.h"
#include "ops/random/dropout.h"

namespace norma::nn {

namespace {

double checked_rate(std::string_view op, double rate) {
  check(rate >= 0 && rate <= 1, op, "rate: expected a value in [0, 1], got {}", rate);
  return rate;
}

std::string pool_name(std::string_view type, const Pool2dOptions& options) {
  const Pair stride(options.stride.h == 0 ? options.kernel.h : options.stride.h,
                    options.stride.w == 0 ? options.kernel.w : options.stride.w);
  return fmt::format("{}(kernel={}, stride={}, padding={})", type, to_string(options.kernel), to_string(stride),
                     to_string(options.padding));
}

}  // namespace

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

Dropout::Dropout(double rate) : rate_(checked_rate("Dropout", rate)) {}
Tensor Dropout::forward(const Tensor& x) {
  return dropout(x, rate_, is_training());
}

DropPath::DropPath(double rate) : rate_(checked_rate("DropPath", rate)) {}
Tensor DropPath::forward(const Tensor& x) {
  return drop_path(x, rate_, is_training());
}

std::string MaxPool2d::name() const {
  return pool_name("MaxPool2d", options_);
}
std::string AvgPool2d::name() const {
  return pool_name("AvgPool2d", options_);
}
std::string AdaptiveAvgPool2d::name() const {
  return fmt::format("AdaptiveAvgPool2d({})", to_string(output_));
}

}  // namespace norma::nn

#pragma once

#include "core/factory.h"
#include "core/tape.h"
#include "models/registry.h"
#include "nn/conv.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/norm/factory.h"
#include "nn/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/view.h"

#include <memory>
#include <string>

namespace norma::test {

/// A norm in every role that it has in a network: behind a convolution with an activation, with a residual, alone, and
/// in front of a linear layer.
class SmallNetwork : public nn::Module {
 public:
  explicit SmallNetwork(const std::string& norm, const std::string& conv_layer = "conv") {
    const auto conv = [&](int64_t in, int64_t stride) {
      return nn::make_conv(conv_layer, in, kWidth, 3, {.stride = stride, .padding = 1, .bias = in == 3}, 1.7);
    };
    conv1_ = register_module("conv1", conv(3, 2));
    norm1_ = register_module("norm1", nn::make_norm(norm, kWidth));
    conv2_ = register_module("conv2", conv(kWidth, 1));
    norm2_ = register_module("norm2", nn::make_norm(norm, kWidth));
    norm3_ = register_module("norm3", nn::make_norm(norm, kWidth));
    fc_ = register_module("fc", std::make_shared<nn::Linear>(kWidth, 5));
  }
  Tensor forward(const Tensor& x) override {
    const Tensor a = nn::conv_norm_act(*conv1_, *norm1_, x, {.activation = Activation::silu});
    const Tensor b = nn::conv_norm_act(*conv2_, *norm2_, a, {.activation = Activation::gelu, .residual = a});
    return (*fc_)(
        flatten(adaptive_avg_pool2d((*norm3_)(max_pool2d(b, {.kernel = 3, .stride = 2, .padding = 1})), 1), 1));
  }
  [[nodiscard]] std::string name() const override { return "SmallNetwork"; }

 private:
  static constexpr int64_t kWidth = 16;
  std::shared_ptr<nn::Module> conv1_, norm1_, conv2_, norm2_, norm3_, fc_;
};

/// Gives a network weights, biases and running statistics that are not 1 and 0, by noise and a few training passes.
inline void stir(nn::Module& network, const Sizes& sizes) {
  const NoGradGuard no_grad;
  Generator generator(7);
  for (const auto& [name, x] : network.named_parameters()) {
    Tensor values = x.detach();
    add_(values, mul(randn(x.sizes(), {.device = kCpu}, generator), 0.05));
  }
  network.train();
  for (int i = 0; i < 3; ++i) {
    network(add(randn(sizes, {.device = kCpu}, generator), 0.3));
  }
  network.eval();
}

}  // namespace norma::test

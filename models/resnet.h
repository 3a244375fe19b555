#pragma once

#include "models/registry.h"
#include "nn/layers.h"
#include "nn/norm/factory.h"

#include <array>
#include <memory>
#include <string>
#include <string_view>

namespace norma::models {

/// The norm of a ResNet where none is asked for.
inline constexpr std::string_view kResNetNorm = "batch";

/// ResNet (He et al., "Deep residual learning for image recognition", 2016) in the form "v1.5" (the stride stands in
/// the 3x3 convolution), as torchvision builds it: same names, same order, same start values.
struct ResNetConfig {
  bool bottleneck = true;  ///< blocks 1x1, 3x3, 1x1 with 4-fold output; false: two 3x3
  std::array<int64_t, 4> layers{};
};

class ResNet : public nn::Module {
 public:
  /// Throws Error for options that ResNet does not have (patch_size, layer_scale), and for zero_init_last with a norm
  /// without a weight that scales its output. With `conv_layer` scaled_std_conv every convolution has the gamma of
  /// relu, as in timm.
  ResNet(const std::string& name, const ResNetConfig& config, const ModelOptions& options);

  /// x: (N, in_channels, H, W) → (N, num_classes).
  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string name() const override { return name_; }

 private:
  std::string name_;
  std::shared_ptr<nn::Module> conv1_;
  nn::ChildSlot bn1_;
  std::shared_ptr<nn::Module> maxpool_;
  std::array<std::shared_ptr<nn::Module>, 4> layers_;
  std::shared_ptr<nn::Module> avgpool_;
  std::shared_ptr<nn::Linear> fc_;
};

}  // namespace norma::models

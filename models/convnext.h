#pragma once

#include "models/registry.h"
#include "nn/layers.h"
#include "nn/norm/factory.h"
#include "nn/norm/policy.h"

#include <array>
#include <memory>
#include <string>
#include <string_view>

namespace norma::models {

/// eps of every norm in a ConvNeXt whose spec names none.
inline constexpr std::string_view kConvNeXtEps = "1e-6";
/// The norm of a ConvNeXt where none is asked for.
inline constexpr std::string_view kConvNeXtNorm = "layer2d";

/// ConvNeXt (Liu et al., "A ConvNet for the 2020s", 2022) and ConvNeXt V2 (Woo et al., 2023), as timm builds them: same
/// names, same order, same start values.
struct ConvNeXtConfig {
  std::array<int64_t, 4> depths{};
  std::array<int64_t, 4> widths{};
  bool conv_mlp = false;  ///< the weights of the two layers of each block's MLP are (out, in, 1, 1)
  bool grn = false;       ///< V2: a global response norm in each block's MLP, after its GELU, and no layer scale
};

class ConvNeXt : public nn::Module {
 public:
  /// Throws Error for options that ConvNeXt does not have (small_stem, zero_init_last). `conv_layer` is for the stem,
  /// the layers that halve the images and the depthwise convolutions; the layers of each block's MLP are linear.
  ///
  /// Every norm has eps 1e-6 unless its spec says otherwise. The norm of the head acts on one pixel, the result of
  /// global pooling. If that leaves a norm nothing to normalize (NormDefinition::needs_pixels: instance, frn), the head
  /// takes layer2d, since the same norm before the pooling would make every channel's average its bias.
  ///
  /// options.norm_policy.placement says where the norms of a block stand (nn::NormPlacement):
  ///   inside   x + gamma · mlp(norm(depthwise(x))), which is ConvNeXt's own
  ///   pre      x + gamma · mlp(depthwise(norm_pre(x)))
  ///   post     norm_post(x + gamma · mlp(depthwise(x)))
  ///   peri     x + gamma · norm_out(mlp(depthwise(norm_in(x))))
  /// With peri, gamma stands after norm_out, which would undo it otherwise. The norms of stem, head and of the layers
  /// between the stages stay where they are.
  ConvNeXt(const std::string& name, const ConvNeXtConfig& config, const ModelOptions& options);

  /// x: (N, in_channels, H, W) → (N, num_classes).
  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string name() const override { return name_; }

 private:
  std::string name_;
  std::shared_ptr<nn::Module> stem_;
  std::shared_ptr<nn::Module> stages_;
  std::shared_ptr<nn::Module> head_;
};

/// The name of a block's norm; peri has norm_out, too. Each placement has a name of its own, so that no network reads
/// weights that were trained under another one.
std::string convnext_norm_name(nn::NormPlacement placement);

}  // namespace norma::models

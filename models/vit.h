#pragma once

#include "models/registry.h"
#include "nn/layers.h"
#include "nn/norm/factory.h"
#include "nn/norm/policy.h"

#include <memory>
#include <string>
#include <string_view>

namespace norma::models {

/// The norm of a ViT where none is asked for.
inline constexpr std::string_view kVitNorm = "layer2d";
/// The place of a norm of the patches, which a ViT has only if a line of the norm policy has this very name.
inline constexpr std::string_view kPatchNorm = "patch_embed.norm";

/// Vision transformer (Dosovitskiy et al., "An image is worth 16x16 words", 2020; DeiT: Touvron et al., 2021), as timm
/// builds it: same names, same order, same start values.
struct VitConfig {
  int64_t width = 0;  ///< channels of a token
  int64_t heads = 0;
  int64_t depth = 12;
  bool pre_norm = false;  ///< norm_pre before the blocks and no bias of patch_embed.proj: CLIP's ViTs, as in timm

  /// Returns the eps of every norm whose spec names none.
  [[nodiscard]] std::string eps() const { return pre_norm ? "1e-5" : "1e-6"; }
};

class VisionTransformer : public nn::Module {
 public:
  /// The tokens between the layers are images of one row, (N, width, 1, 1 + patches) in channels_last, whose memory is
  /// that of (N, 1 + patches, width): norms take them without a copy. A norm over "pixels" is one over tokens, the
  /// class token among them. Images of either format give such tokens: making room for the class token copies them.
  ///
  /// ModelOptions::image_size (224) and patch_size (16) decide the number of tokens. global_pool says what the
  /// classifier gets: the class token behind `norm` ("token"), or `fc_norm` of the mean of all others ("avg"). fc_norm
  /// acts on one pixel; where that leaves a norm nothing to normalize (NormDefinition::needs_pixels), it is layer2d.
  /// qk_norm is a norm over the channels of a head, of queries (q_norm) and of keys (k_norm): they come to it as
  /// (N, width / heads, tokens, heads), so that a norm over pixels is one over the tokens of all heads. layer_scale is
  /// the start value of ls1.gamma and ls2.gamma. `conv_layer` is for patch_embed.proj; a norm behind it stands at
  /// kPatchNorm. pos_drop is a dropout of the tokens behind their positions, the class token among them.
  ///
  /// Every norm has eps 1e-6 (VitConfig::pre_norm: 1e-5) unless its spec says otherwise. options.norm_policy.placement
  /// says where the norms of a block's two branches stand, written for the first:
  ///   pre      x + ls1 · attn(norm1(x)), which is ViT's own
  ///   post     norm1_post(x + ls1 · attn(x))
  ///   peri     x + ls1 · norm1_out(attn(norm1_in(x)))
  ///
  /// Throws Error for options that ViT does not have (small_stem, zero_init_last), a patch_size that does not divide
  /// image_size, heads that do not divide the width, the placement inside, and an unknown global_pool.
  VisionTransformer(const std::string& name, const VitConfig& config, const ModelOptions& options);

  /// x: (N, in_channels, image_size, image_size) → (N, num_classes). Throws Error for images of another size.
  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string name() const override { return name_; }

 private:
  std::string name_;
  int64_t image_size_;
  bool pools_tokens_;  ///< the mean of the tokens, not the class token
  Tensor cls_token_, pos_embed_;
  std::shared_ptr<nn::Module> patch_embed_, pos_drop_, blocks_;
  nn::ChildSlot norm_pre_, norm_;  ///< norm_: norm, or fc_norm
  std::shared_ptr<nn::Linear> head_;
};

/// The name of a norm in a ViT's block: "norm1" for the first branch with the placement pre.
std::string vit_norm_name(int branch, nn::NormPlacement placement);

}  // namespace norma::models

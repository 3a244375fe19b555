#pragma once

#include "nn/module.h"
#include "nn/norm/factory.h"
#include "nn/norm/policy.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::models {

/// The options of a network. Setting one that the network's family does not have is an Error.
struct ModelOptions {
  int64_t num_classes = 1000;
  int64_t in_channels = 3;
  std::string norm;  ///< any spec of nn/norm/factory.h; "" is the family's own: batch for ResNet, layer2d for others
  std::string conv_layer = "conv";  ///< a name of nn/conv.h, for the network's convolutions
  bool small_stem = false;          ///< ResNet: 3x3 stride 1 without pooling, for small images
  /// ConvNeXt, ViT: size and stride of the first convolution; 4 and 16 by default.
  std::optional<int64_t> patch_size;
  bool zero_init_last = false;  ///< ResNet: the last norm of each block starts at weight 0
  /// ConvNeXt, ViT: start value of gamma, 1e-6 by default (V2, ViT: 0); 0: no layer scale.
  std::optional<double> layer_scale;
  double drop_path = 0;             ///< rate of the last block; it rises linearly from 0 over the blocks
  bool grad_checkpointing = false;  ///< blocks keep only their inputs for backward: nn/checkpoint.h
  /// ViT: height and width of the images, 224 by default. Other networks take any, and have no use for it.
  std::optional<int64_t> image_size = {};
  std::string global_pool = {};     ///< ViT: what the classifier gets, "token" (the default) or "avg"
  std::string qk_norm = {};         ///< ViT: norm of queries and keys, over the channels of a head; "", "none": no such
  bool qkv_bias = true;             ///< ViT: queries, keys and values have a bias
  double pos_drop = 0;              ///< ViT: rate of the dropout behind the positions, timm's pos_drop_rate
  uint64_t seed = 0;                ///< of the start values, which depend on it alone
  nn::NormPolicy norm_policy = {};  ///< other norms for the layers that it names; without rules, none
  bool initialize = true;           ///< false: zeros for convolutions and linear layers, to be loaded into
};

/// The definition of a network of your own.
struct ModelDefinition {
  /// Makes it as create_model() promises. `options.norm` is never empty. The norm policy is applied afterwards.
  std::function<std::shared_ptr<nn::Module>(const ModelOptions& options)> make;
  std::string own_norm = "batch";  ///< the norm where none is asked for
  /// The options that it takes beside num_classes, in_channels, norm, norm_policy, seed and initialize: conv_layer,
  /// small_stem, patch_size, zero_init_last, layer_scale, drop_path, grad_checkpointing, global_pool, qk_norm,
  /// qkv_bias, pos_drop, norm_placement (NormPolicy::placement). Setting any other is an Error.
  std::vector<std::string> options = {};
};

/// Makes a network known to create_model(), and so to every command of a program. Must not run while another thread
/// makes one. Throws Error when the name is empty or taken, without a maker, for an unknown norm, and for an option
/// that no network has.
void register_model(const std::string& name, ModelDefinition definition);

/// The network that a name stands for: "vit_tiny" for timm's "vit_tiny_patch16_224" and "deit_tiny_patch16_224",
/// "vit_base_clip" for "vit_base_patch32_clip_224", any other name itself.
std::string network_of(const std::string& name);

/// The size of images in timm's name of a ViT, 224 in "vit_tiny_patch16_224"; none for any other name.
std::optional<int64_t> image_size_in(const std::string& name);

/// True iff it is the name of a network of Norma's own, which recognize_model() knows.
bool is_built_in(const std::string& name);

/// True iff the networks of this name take an option of ModelDefinition::options. Throws Error for an unknown name.
bool model_takes(const std::string& name, std::string_view option);

/// Makes a network by name, initialized, in training mode, float32, contiguous. Input (N, in_channels, H, W), output
/// (N, num_classes). Throws Error for an unknown name (with the nearest known one) and for options that are wrong or do
/// not apply.
std::shared_ptr<nn::Module> create_model(const std::string& name, const ModelOptions& options = {});

/// The spec of a network's norm where none is asked for: "batch", "layer2d". Throws Error for an unknown name.
std::string own_norm(const std::string& name);

/// The norm that the networks of a name make of a spec, with every option that its layers read, as
/// nn::complete_choice(); for "" the own norm. Two specs with the same choice are the same norm there. Throws Error for
/// an unknown name or spec.
nn::NormChoice complete_norm(const std::string& name, const std::string& spec);

/// The size of patches of the networks of a name where none is asked for: for images below 64 pixels 2 in a ConvNeXt
/// and 4 in a ViT, else 4 and 16; in a registered network 2 below 64 pixels, else its own (none); for timm's names the
/// one in the name. None for networks without patches. Throws Error for an unknown name.
std::optional<int64_t> default_patch_size(const std::string& name, int64_t image_size);

/// Throws Error "op: img-size: …" for images too small for a ConvNeXt with such patches, or not a multiple of a ViT's.
/// Other networks take any.
void check_image_size(std::string_view op, const std::string& name, int64_t image_size, int64_t patch_size);

/// The built-in network that could have a state dict of these tensors, by their names and sizes, whatever its norm,
/// classes and options; "" if there is none. Some of its tensors may be missing.
std::string recognize_model(const nn::NamedTensors& tensors);

/// The placement whose names the norms in the blocks of a ConvNeXt or ViT have; none where no tensor belongs to one.
std::optional<nn::NormPlacement> recognize_norm_placement(const nn::NamedTensors& tensors);

/// The names of all networks: resnet18 … resnet152, convnext_atto … convnext_xlarge, convnextv2_atto … convnextv2_huge,
/// vit_tiny … vit_base, vit_base_clip, and the registered ones. timm's names of a ViT (network_of()) work wherever
/// these do.
std::vector<std::string> model_names();

}  // namespace norma::models

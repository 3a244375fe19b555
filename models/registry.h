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
  std::string norm;  ///< any spec of nn/norm/factory.h; "" is the family's own: batch for ResNet, layer2d for ConvNeXt
  std::string conv_layer = "conv";    ///< a name of nn/conv.h, for the network's convolutions
  bool small_stem = false;            ///< ResNet: 3x3 stride 1 without pooling, for small images
  std::optional<int64_t> patch_size;  ///< ConvNeXt: size and stride of the first convolution; 4 by default
  bool zero_init_last = false;        ///< ResNet: the last norm of each block starts at weight 0
  std::optional<double> layer_scale;  ///< ConvNeXt: start value of gamma, 1e-6 by default (V2: 0); 0: no layer scale
  double drop_path = 0;               ///< rate of the last block; it rises linearly from 0 over the blocks
  bool grad_checkpointing = false;    ///< blocks keep only their inputs for backward: nn/checkpoint.h
  uint64_t seed = 0;                  ///< of the start values, which depend on it alone
  nn::NormPolicy norm_policy = {};    ///< other norms for the layers that it names; without rules, none
  bool initialize = true;             ///< false: zeros for convolutions and linear layers, to be loaded into
};

/// The definition of a network of your own.
struct ModelDefinition {
  /// Makes it as create_model() promises. `options.norm` is never empty. The norm policy is applied afterwards.
  std::function<std::shared_ptr<nn::Module>(const ModelOptions& options)> make;
  std::string own_norm = "batch";  ///< the norm where none is asked for
  /// The options that it takes beside num_classes, in_channels, norm, norm_policy, seed and initialize: conv_layer,
  /// small_stem, patch_size, zero_init_last, layer_scale, drop_path, grad_checkpointing, norm_placement
  /// (NormPolicy::placement). Setting any other is an Error.
  std::vector<std::string> options = {};
};

/// Makes a network known to create_model(), and so to every command of a program. Must not run while another thread
/// makes one. Throws Error when the name is empty or taken, without a maker, for an unknown norm, and for an option
/// that no network has.
void register_model(const std::string& name, ModelDefinition definition);

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

/// Height and width of the smallest images that the networks of a name take, from the size of their patches if they
/// have patches; 1 if they take any image. Throws Error for an unknown name.
int64_t least_image_size(const std::string& name, int64_t patch_size);

/// The built-in network that could have a state dict of these tensors, by their names and sizes, whatever its norm,
/// classes and options; "" if there is none. Some of its tensors may be missing.
std::string recognize_model(const nn::NamedTensors& tensors);

/// The names of all networks: resnet18 … resnet152, convnext_atto … convnext_xlarge, convnextv2_atto … convnextv2_huge,
/// and the registered ones.
std::vector<std::string> model_names();

}  // namespace norma::models

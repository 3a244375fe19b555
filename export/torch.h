#pragma once

#include "models/registry.h"
#include "nn/module.h"

#include <cstdint>
#include <map>
#include <string>

namespace norma {

/// A library of networks for PyTorch.
enum class TorchLibrary : uint8_t { timm, torchvision };

/// "timm", "torchvision".
const char* to_string(TorchLibrary library);

/// A network for PyTorch: weights for a strict load_state_dict(), and a program of Python that builds it.
struct TorchNetwork {
  nn::NamedTensors weights;  ///< they share the memory of the given ones
  std::string program;
};

/// A trained create_model(`name`, `options`), whose state dict is `state`, as a network of timm or torchvision. The
/// program's function network() builds the network and loads weights.safetensors from the same folder. Run as a script,
/// the program computes the output of `input` in example.safetensors, and fails if its root mean square error, as a
/// share of the root mean square of `output` there, is above `limit`. `about`, texts of JSON by name, become constants
/// of the program: CLASS_NAMES = […]. Throws Error for what the library cannot build, with the reason: networks and
/// norms that it does not have, norm policies but for the norm of a ViT's patches, convolutions other than conv, and
/// norms other than layer2d in torchvision's ConvNeXt.
TorchNetwork export_torch(const std::string& name, const models::ModelOptions& options, const nn::NamedTensors& state,
                          TorchLibrary library, double limit, const std::map<std::string, std::string>& about = {});

}  // namespace norma

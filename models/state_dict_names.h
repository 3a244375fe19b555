#pragma once

#include "nn/module.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace norma::models {

/// The library whose names and sizes a state dict's tensors have. For a ResNet, torchvision's and timm's are the same.
enum class Dialect { torchvision, timm, facebook };

/// "torchvision", "timm", "facebook".
const char* to_string(Dialect dialect);
/// The names of all dialects, in the order of the enumerators.
std::vector<std::string> dialect_names();

/// The library whose names all of these tensors have, behind wrappers as in rename_state_dict(); none for names that no
/// library has. Names that two libraries share count as torchvision's for a ResNet, and as timm's otherwise.
std::optional<Dialect> recognize_dialect(const nn::NamedTensors& tensors);

struct Renamed {
  nn::NamedTensors tensors;                                  ///< in the order of the input; they share its memory
  std::vector<std::pair<std::string, std::string>> changed;  ///< names before and after, where they differ
  std::vector<std::string> reshaped;                         ///< new names, with the sizes before and after
  std::vector<std::string> dropped;  ///< counters of averages (n_averaged), which are no weights
};

/// A state dict of a ResNet or ConvNeXt with the names and sizes of another library. Takes off the wrappers module.,
/// model. and _orig_mod. before all names. Layer scale is (C, 1, 1) in torchvision and (C) elsewhere; the weights of
/// V2's response norms are (1, 1, 1, C) in Facebook's code and (C) in timm; the two layers of an MLP are linear in all
/// but timm's small networks, where they are convolutions. Throws Error "convert: tensor 'x': …" for the first name or
/// size that is not of the dialect `from`, and for networks that `to` does not have: ConvNeXt V2 in torchvision,
/// ResNets in Facebook's code.
Renamed rename_state_dict(const nn::NamedTensors& tensors, Dialect from, Dialect to);

/// The tensors without the wrappers module., model. and _orig_mod. that all names have, and without n_averaged, the
/// counter of averages.
nn::NamedTensors unwrapped_state_dict(const nn::NamedTensors& tensors);

}  // namespace norma::models

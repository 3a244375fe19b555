#pragma once

#include "nn/module.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::models {

/// The library whose names and sizes a state dict's tensors have. Norma's own are timm's; for a ResNet, torchvision's
/// are the same. Facebook's code for ViTs (DeiT, DINO) has timm's names. Hugging Face has tensors of their own for q, k
/// and v, which are copied into one.
enum class Dialect { torchvision, timm, facebook, huggingface };

/// "torchvision", "timm", "facebook", "huggingface".
const char* to_string(Dialect dialect);
/// The names of all dialects, in the order of the enumerators.
std::vector<std::string> dialect_names();

/// The weights of one network among the tensors of a file.
struct FoundWeights {
  nn::NamedTensors tensors;           ///< under Norma's names where a dialect has them; they share the file's memory
  std::vector<std::string> in_file;   ///< the name of each in the file
  std::optional<Dialect> dialect;     ///< none: of no known network, names and sizes are the file's
  std::string prefix;                 ///< what stands before their names in the file: "state_dict.module."
  std::vector<std::string> left_out;  ///< the file's other tensors
};

struct FindOptions {
  bool averages = false;   ///< of the weights: those under a name like "model_ema" or "state_dict_ema"
  bool has_dicts = false;  ///< names may begin with those of a file's dicts, as torch.save() keeps them
  std::string prefix;      ///< a part of the prefix, "encoder_q", where a file has several networks; "": any
};

/// Finds the weights of a ConvNeXt, ResNet or ViT after any prefix, by the names that a library gives them. In a file
/// of no known network, where it has dicts: those in "state_dict", "model_state_dict", "model", "net" or "weights",
/// after the wrappers module., model. and _orig_mod. that all names have. Layer scale is (C, 1, 1) in torchvision and
/// (C) elsewhere; the weights of V2's response norms are (1, 1, 1, C) in Facebook's and Hugging Face's code and (C) in
/// timm; the two layers of an MLP are linear in all but timm's small networks, where they are convolutions. Throws
/// Error "weights: FILE: …" for a file with several networks, of which `options` names none, and without averages where
/// they are asked for.
FoundWeights find_weights(const std::string& file, const nn::NamedTensors& tensors, const FindOptions& options = {});

/// True iff a part of Norma's networks has the first word of the name: "stages", "layer1", "fc". A tensor
/// of another name stands beside the network.
bool is_in_network(std::string_view name);

/// Tensors of a ConvNeXt, ResNet or ViT with the names and sizes of another library than Norma's. Throws Error
/// "convert: tensor 'x': …" for one that the library does not have: of ConvNeXt V2 in torchvision, of ResNets in
/// Facebook's code.
nn::NamedTensors renamed(const nn::NamedTensors& tensors, Dialect to);

}  // namespace norma::models

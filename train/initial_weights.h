#pragma once

#include "nn/module.h"
#include "train/recipe.h"

#include <string>

namespace norma::train {

/// Begins a run with the weights of Recipe::initial_checkpoint: of Norma, timm, torchvision or Facebook's ConvNeXt, in
/// safetensors or as torch.save() writes them, recognised by their names. The classifier keeps its start values where
/// the file's has another number of classes, or with Recipe::reset_head. So do tensors of norm layers that the file
/// lacks; those of its norm layers that the network lacks are left out. With Recipe::strict, both are an Error.
///
/// Returns a line that names what was taken and what was not. Throws Error for a file that cannot be read, numbers that
/// are not finite, and weights of another network.
std::string load_initial_weights(nn::Module& model, const Recipe& recipe);

}  // namespace norma::train

#pragma once

#include "nn/module.h"

#include <cstdint>
#include <map>
#include <string>

namespace norma::models {

/// The depth of each parameter of a network, by its name: 0 for the stem, then a number for each block, and the largest
/// for the head. As in timm's group_matcher of ResNet, ConvNeXt and ViT, the layers that lead into a stage of a
/// ConvNeXt belong to the stage's first block, and a ViT's norm after its blocks to the last block. Your own networks
/// work, too, if they name their parts alike: conv1, bn1, stem, cls_token, pos_embed, patch_embed, layerN.M,
/// stages.N.blocks.M, stages.N.downsample, blocks.N, norm. All other parameters belong to the head. Throws Error for a
/// network that has no block of such a name.
std::map<std::string, int64_t> parameter_depths(const nn::Module& network);

/// The path of a network's classifier, the module of its last parameter: "fc", "head.fc". Throws Error for a network
/// without parameters.
std::string classifier_path(const nn::Module& network);

}  // namespace norma::models

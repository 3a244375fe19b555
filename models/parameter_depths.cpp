#include "models/parameter_depths.h"

#include "base/error.h"

#include <cstdio>
#include <limits>
#include <string_view>
#include <utility>

namespace norma::models {
namespace {

/// The place of a block: its stage, and its number there. The stem comes before all blocks, the head after them.
/// Between them is the norm after a ViT's blocks, which has the last block's depth.
using Depth = std::pair<int64_t, int64_t>;
constexpr Depth kStem{-1, 0};
constexpr Depth kLastNorm{std::numeric_limits<int64_t>::max(), 0};
constexpr Depth kHead{std::numeric_limits<int64_t>::max(), 1};

Depth place_of(const std::string& name) {
  for (const std::string_view stem :
       {"stem.", "conv1.", "bn1.", "cls_token", "pos_embed", "patch_embed.", "norm_pre."}) {
    if (name.starts_with(stem)) {
      return kStem;
    }
  }
  if (name.starts_with("norm.")) {
    return kLastNorm;
  }
  int stage = 0;
  int block = 0;
  int length = 0;  // of the matched text
  if ((std::sscanf(name.c_str(), "blocks.%9d.%n", &block, &length) == 1 && length > 0) ||
      (std::sscanf(name.c_str(), "layer%9d.%9d.%n", &stage, &block, &length) == 2 && length > 0) ||
      (std::sscanf(name.c_str(), "stages.%9d.blocks.%9d.%n", &stage, &block, &length) == 2 && length > 0) ||
      (std::sscanf(name.c_str(), "stages.%9d.downsample.%n", &stage, &length) == 1 && length > 0)) {
    return {stage, block};
  }
  return kHead;
}

}  // namespace

std::map<std::string, int64_t> parameter_depths(const nn::Module& network) {
  std::map<Depth, int64_t> depths;
  const nn::NamedTensors parameters = network.named_parameters();
  bool has_blocks = false;
  for (const auto& [name, x] : parameters) {
    const Depth place = place_of(name);
    has_blocks = has_blocks || (place != kStem && place != kLastNorm && place != kHead);
    depths.emplace(place, 0);
  }
  check(
      has_blocks, "parameter_depths",
      "network: expected parameters of blocks, as layer1.0.conv1.weight or stages.0.blocks.0.conv_dw.weight, got none "
      "in {}",
      network.name());
  int64_t depth = 0;
  for (auto& [place, number] : depths) {
    number = place == kLastNorm ? depth - 1 : depth++;
  }
  std::map<std::string, int64_t> result;
  for (const auto& [name, x] : parameters) {
    result[name] = depths.at(place_of(name));
  }
  return result;
}

std::string classifier_path(const nn::Module& network) {
  const nn::NamedTensors parameters = network.named_parameters();
  check(!parameters.empty(), "classifier", "expected a network with parameters, got none");
  const std::string& last = parameters.back().first;
  return last.substr(0, last.rfind('.'));
}

}  // namespace norma::models

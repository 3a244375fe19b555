#include "models/parameter_depths.h"

#include "base/error.h"

#include <charconv>
#include <limits>
#include <optional>
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

bool take_prefix(std::string_view& text, std::string_view prefix) {
  const bool found = text.starts_with(prefix);
  text.remove_prefix(found ? prefix.size() : 0);
  return found;
}

std::optional<int64_t> take_number(std::string_view& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) {
    return {};
  }
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

Depth place_of(std::string_view name) {
  for (const std::string_view stem :
       {"stem.", "conv1.", "bn1.", "cls_token", "pos_embed", "patch_embed.", "norm_pre."}) {
    if (name.starts_with(stem)) {
      return kStem;
    }
  }
  if (name.starts_with("norm.")) {
    return kLastNorm;
  }
  if (take_prefix(name, "blocks.")) {
    const auto block = take_number(name);
    return block && name.starts_with(".") ? Depth{0, *block} : kHead;
  }
  const bool stages = take_prefix(name, "stages.");
  if (!stages && !take_prefix(name, "layer")) {
    return kHead;
  }
  const auto stage = take_number(name);
  if (!stage) {
    return kHead;
  }
  if (stages && name.starts_with(".downsample.")) {
    return {*stage, 0};
  }
  const bool dot = take_prefix(name, stages ? ".blocks." : ".");
  const auto block = dot ? take_number(name) : std::nullopt;
  return block && name.starts_with(".") ? Depth{*stage, *block} : kHead;
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

#include "train/layer_nodes.h"

#include "core/tape.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <unordered_set>

namespace norma::train {

LayerNodes::LayerNodes(const nn::Module& model) {
  for (const auto& [name, module] : model.named_modules()) {
    names_.emplace(module, name);
  }
  mark();
}

void LayerNodes::enter(const nn::Module& module) {
  const auto found = names_.find(&module);
  open_.push_back(found != names_.end() ? found->second : open_.empty() ? "" : open_.back());
  mark();
}

void LayerNodes::leave(const nn::Module& /*module*/, const Tensor& /*input*/, const Tensor& output) {
  if (!output.defined() && failed_.empty()) {
    failed_ = open_.back();
  }
  open_.pop_back();
  mark();
}

void LayerNodes::mark() {
  from_.emplace_back(next_node_number(), open_.empty() ? "" : open_.back());
}

std::string LayerNodes::layer_of(uint64_t node) const {
  // Several marks may have one number; the last of them names the active layer.
  const auto after = std::upper_bound(from_.begin(), from_.end(), node,
                                      [](uint64_t number, const auto& mark) { return number < mark.first; });
  return after == from_.begin() ? "" : std::prev(after)->second;
}

std::vector<LayerBytes> LayerNodes::saved(const Tape& tape) const {
  std::map<std::string, int64_t> bytes;
  std::unordered_set<const Storage*> seen;
  for (const std::shared_ptr<Node>& node : tape.nodes()) {
    for (const SavedTensor& saved : node->saved) {
      const Tensor& x = saved.value();
      if (x.defined() && !saved.is_leaf() && seen.insert(x.storage().get()).second) {
        bytes[layer_of(node->sequence)] += static_cast<int64_t>(x.storage()->bytes());
      }
    }
  }
  std::vector<LayerBytes> layers;
  for (const auto& [layer, sum] : bytes) {
    layers.push_back({.layer = layer, .bytes = sum});
  }
  std::stable_sort(layers.begin(), layers.end(),
                   [](const LayerBytes& a, const LayerBytes& b) { return a.bytes > b.bytes; });
  return layers;
}

}  // namespace norma::train

#include "lab/telemetry/layer_log.h"

#include "core/tape.h"
#include "nn/conv.h"
#include "nn/layers.h"
#include "nn/norm/norm.h"
#include "nn/sequential.h"

#include <algorithm>
#include <array>
#include <utility>

namespace norma::lab {

namespace {

template <class... Ms>
bool is_one_of(const nn::Module& module) {
  return (... || (dynamic_cast<const Ms*>(&module) != nullptr));
}

/// True iff the module's weight has two or four axes, two of them longer than 1, which that of no norm has: a matrix
/// product over the channels may be a module of its own kind.
bool has_matrix(const nn::Module& module) {
  return module.children().empty() && std::ranges::any_of(module.named_parameters(), [](const auto& parameter) {
           const auto& [name, x] = parameter;
           return name == "weight" && (x.rank() == 2 || x.rank() == 4) &&
                  std::ranges::count_if(x.sizes(), [](int64_t size) { return size > 1; }) >= 2;
         });
}

/// True iff the module contains a convolution or a matrix product.
bool has_product(const nn::Module& module) {
  return is_one_of<nn::ConvolutionModule, nn::Linear>(module) || has_matrix(module) ||
         std::ranges::any_of(module.children(), [](const auto& child) { return has_product(*child.second); });
}

/// A registered norm may be any module: one that stands in a slot and is nothing else.
bool is_norm(const nn::Module& module, bool in_slot) {
  const bool something_else =
      is_one_of<nn::Sequential, nn::Identity, nn::Flatten, nn::ReLU, nn::GELU, nn::SiLU, nn::MaxPool2d, nn::AvgPool2d,
                nn::AdaptiveAvgPool2d, nn::Dropout, nn::DropPath>(module);
  return is_one_of<nn::Norm>(module) || (in_slot && !something_else && !has_product(module));
}

LayerKind kind_of(const nn::Module& module, bool in_slot) {
  if (is_norm(module, in_slot)) {
    return LayerKind::norm;
  }
  if (is_one_of<nn::ConvolutionModule>(module)) {
    return LayerKind::convolution;
  }
  return is_one_of<nn::Linear>(module) || has_matrix(module) ? LayerKind::linear : LayerKind::other;
}

bool starts_with_path(const std::string& name, const std::string& parent) {
  return name.size() > parent.size() && name.starts_with(parent) && name[parent.size()] == '.';
}

}  // namespace

std::string_view to_string(LayerKind kind) {
  constexpr std::array<std::string_view, 4> kNames = {"norm", "convolution", "linear", "other"};
  return kNames.at(static_cast<size_t>(kind));
}

LayerTable::LayerTable(nn::Module& model) {
  std::unordered_set<const nn::Module*> in_slots;
  for (const nn::ReplaceableModule& slot : model.replaceable_modules()) {
    in_slots.insert(slot.module);
  }
  for (const auto& [name, module] : model.named_modules()) {
    const bool inside_norm =
        std::ranges::any_of(layers_, [&path = name](const Layer& layer) {  // clang takes no binding
          return layer.kind == LayerKind::norm && starts_with_path(path, layer.name);
        });
    if (inside_norm || name.empty()) {
      continue;
    }
    const LayerKind kind = kind_of(*module, in_slots.contains(module));
    by_module_.emplace(module, layers_.size());
    layers_.push_back({.name = name, .kind = kind, .is_whole = kind == LayerKind::norm || module->children().empty()});
  }
  layers_.emplace_back();
  for (const Tensor& x : model.parameters()) {
    parameter_sizes_.insert(x.numel());
  }
}

size_t LayerTable::index_of(const nn::Module& module) const {
  const auto found = by_module_.find(&module);
  return found == by_module_.end() ? none() : found->second;
}

LayerLog::LayerLog(const LayerTable& table, const OpProfile* profile, OnOutput on_output)
    : table_(table), profile_(profile), on_output_(std::move(on_output)), image_elements_(table.layers().size(), 0) {
  mark();
}

void LayerLog::enter(const nn::Module& module) {
  const size_t layer = table_.index_of(module);
  const bool inside_norm = !open_.empty() && table_.layers()[open_.back()].kind == LayerKind::norm;
  // Modules inside a norm, and modules that are no layers, count for the layer around them.
  open_.push_back(layer == table_.none() || inside_norm ? (open_.empty() ? table_.none() : open_.back()) : layer);
  mark();
}

void LayerLog::leave(const nn::Module& module, const Tensor& input, const Tensor& output) {
  const size_t layer = open_.back();
  open_.pop_back();
  mark();
  if (output.defined() && output.rank() > 2 && output.numel() > output.size(0) * output.size(1)) {
    image_elements_[layer] = output.numel();
  }
  if (on_output_ && output.defined() && table_.layers()[layer].is_whole && layer == table_.index_of(module)) {
    on_output_(layer, module, input, output);
  }
}

void LayerLog::mark() {
  marks_.push_back({.node = next_node_number(),
                    .record = profile_ == nullptr ? 0 : profile_->size(),
                    .layer = open_.empty() ? table_.none() : open_.back()});
}

size_t LayerLog::layer_of_node(uint64_t node) const {
  // Several marks may have one number; the last of them names the active layer.
  const auto after = std::upper_bound(marks_.begin(), marks_.end(), node,
                                      [](uint64_t number, const Mark& mark) { return number < mark.node; });
  return after == marks_.begin() ? table_.none() : std::prev(after)->layer;
}

size_t LayerLog::layer_of_record(size_t record) const {
  const auto after = std::upper_bound(marks_.begin(), marks_.end(), record,
                                      [](size_t number, const Mark& mark) { return number < mark.record; });
  return after == marks_.begin() ? table_.none() : std::prev(after)->layer;
}

}  // namespace norma::lab

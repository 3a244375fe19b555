#include "train/memory_use.h"

#include "base/lists.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
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
  auto layers = mapped(bytes, [](const auto& one) { return LayerBytes{.layer = one.first, .bytes = one.second}; });
  std::ranges::stable_sort(layers, [](const LayerBytes& a, const LayerBytes& b) { return a.bytes > b.bytes; });
  return layers;
}

namespace {

int64_t bytes_in(const nn::NamedTensors& tensors) {
  return sum_of(tensors,
                [](const auto& one) { return one.second.numel() * static_cast<int64_t>(size_of(one.second.dtype())); });
}

class StepWithActivations : public ObservedStep {
 public:
  StepWithActivations(const nn::Module& model, std::function<void(std::vector<LayerBytes>)> done)
      : nodes_(model), done_(std::move(done)) {}
  void after_forward(const Tensor& loss, double /*grad_scale*/) override { done_(nodes_.saved(Tape(loss))); }

 private:
  LayerNodes nodes_;
  std::function<void(std::vector<LayerBytes>)> done_;
};

}  // namespace

int64_t MemoryUse::activation_bytes() const {
  return sum_of(activations, &LayerBytes::bytes);
}

MemoryUse MemoryUse::for_images(int64_t count) const {
  MemoryUse other = *this;
  for (LayerBytes& layer : other.activations) {
    layer.bytes = static_cast<int64_t>(static_cast<double>(layer.bytes) * static_cast<double>(count) /
                                       static_cast<double>(images));
  }
  other.images = images > 0 ? count : 0;
  return other;
}

MemoryUse memory_use(const nn::Module& model, const nn::Optimizer& optimizer, const std::optional<Ema>& ema) {
  MemoryUse use;
  use.parameters = bytes_in(model.named_parameters());
  use.buffers = bytes_in(model.named_buffers());
  nn::NamedTensors trained = model.named_parameters();
  std::erase_if(trained, [](const auto& entry) { return !entry.second.requires_grad(); });
  use.gradients = bytes_in(trained);
  use.optimizer = bytes_in(optimizer.state_dict());
  use.averages = ema ? bytes_in(ema->averages()) : 0;
  return use;
}

std::string bytes_text(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  return value >= 1e9   ? fmt::format("{:.2f} GB", value / 1e9)
         : value >= 1e5 ? fmt::format("{:.1f} MB", value / 1e6)
                        : fmt::format("{} bytes", bytes);
}

std::string to_string(const MemoryUse& use) {
  std::string text = fmt::format("parameters {}, gradients {}, optimizer {}", bytes_text(use.parameters + use.buffers),
                                 bytes_text(use.gradients), bytes_text(use.optimizer));
  if (use.averages > 0) {
    text += fmt::format(", averaged weights {}", bytes_text(use.averages));
  }
  if (use.images == 0) {
    return text;
  }
  constexpr size_t kMostLayers = 3;
  std::string layers;
  for (size_t i = 0; i < std::min(kMostLayers, use.activations.size()); ++i) {
    const LayerBytes& layer = use.activations[i];
    layers += fmt::format("{}{} {}", i == 0 ? "" : ", ", layer.layer.empty() ? "outside of layers" : layer.layer,
                          bytes_text(layer.bytes));
  }
  return text + fmt::format(", activations of {} images {} (most in {})", use.images,
                            bytes_text(use.activation_bytes()), layers);
}

std::unique_ptr<ObservedStep> ActivationObserver::begin_step(int64_t /*step*/) {
  return std::make_unique<StepWithActivations>(
      model_, [this](std::vector<LayerBytes> activations) { activations_ = std::move(activations); });
}

}  // namespace norma::train

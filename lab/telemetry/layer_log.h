#pragma once

#include "core/op_profile.h"
#include "lab/telemetry/telemetry.h"
#include "nn/module.h"
#include "nn/module_scope.h"

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace norma::lab {

struct Layer {
  std::string name;  ///< dotted path in the network
  LayerKind kind = LayerKind::other;
  bool is_whole =
      false;  ///< a norm, or a layer without others inside; else the layer stands for its work beside the inner ones
};

/// The layers of a network by module. Modules inside a norm belong to the norm.
class LayerTable {
 public:
  explicit LayerTable(nn::Module& model);

  /// The layers in the order of the network. A nameless one at the end stands for work outside all layers.
  [[nodiscard]] const std::vector<Layer>& layers() const { return layers_; }
  [[nodiscard]] size_t none() const { return layers_.size() - 1; }
  /// none() for modules that are no layers of their own.
  [[nodiscard]] size_t index_of(const nn::Module& module) const;
  /// True iff a parameter of the network has this many elements.
  [[nodiscard]] bool is_size_of_parameter(int64_t elements) const { return parameter_sizes_.contains(elements); }

 private:
  std::vector<Layer> layers_;
  std::unordered_map<const nn::Module*, size_t> by_module_;
  std::unordered_set<int64_t> parameter_sizes_;
};

/// Records, while it lives, which layer is active, so that recorded ops and the records of a profile can be given to
/// layers afterwards. For one thread only.
class LayerLog : public nn::ModuleObserver {
 public:
  /// Called after the forward pass of each layer that is_whole.
  using OnOutput =
      std::function<void(size_t layer, const nn::Module& module, const Tensor& input, const Tensor& output)>;

  /// `profile` may be null for no records. Table and profile must outlive the log.
  LayerLog(const LayerTable& table, const OpProfile* profile, OnOutput on_output = {});

  void enter(const nn::Module& module) override;
  void leave(const nn::Module& module, const Tensor& input, const Tensor& output) override;

  /// The layer that was active when node number `node` was recorded, and when record number `record` was left.
  [[nodiscard]] size_t layer_of_node(uint64_t node) const;
  [[nodiscard]] size_t layer_of_record(size_t record) const;
  /// Elements of a layer's last output that had more than one pixel; 0 if there was none.
  [[nodiscard]] int64_t image_elements(size_t layer) const { return image_elements_[layer]; }

 private:
  /// From this node and record on, `layer` is active.
  struct Mark {
    uint64_t node;
    size_t record;
    size_t layer;
  };
  void mark();

  const LayerTable& table_;
  const OpProfile* profile_;
  OnOutput on_output_;
  std::vector<size_t> open_;  ///< active layers, the innermost last
  std::vector<Mark> marks_;
  std::vector<int64_t> image_elements_;  ///< by layer
};

}  // namespace norma::lab

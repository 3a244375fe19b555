#pragma once

#include "core/tape.h"
#include "nn/module.h"
#include "nn/module_scope.h"

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace norma::train {

/// Bytes saved for backward by a layer's ops.
struct LayerBytes {
  std::string layer;  ///< dotted path in the network; "" for work outside all layers, as the loss
  int64_t bytes = 0;
};

/// Records, while it lives, which layer of a network is active, so that the tape's memory can be attributed to the
/// innermost layer that ran. For one thread only.
class LayerNodes : public nn::ModuleObserver {
 public:
  /// `model` must outlive it.
  explicit LayerNodes(const nn::Module& model);

  void enter(const nn::Module& module) override;
  void leave(const nn::Module& module, const Tensor& input, const Tensor& output) override;

  /// The path of the layer that recorded node number `node` (Node::sequence).
  [[nodiscard]] std::string layer_of(uint64_t node) const;
  /// The innermost layer that an exception ended; "" if there was none.
  [[nodiscard]] const std::string& failed() const { return failed_; }
  /// The memory that backward keeps of a tape recorded meanwhile, by layer, the largest first. A storage that several
  /// ops save counts for the first of them.
  [[nodiscard]] std::vector<LayerBytes> saved(const Tape& tape) const;

 private:
  void mark();

  std::unordered_map<const nn::Module*, std::string> names_;
  std::vector<std::string> open_;                       // active layers, the innermost last
  std::vector<std::pair<uint64_t, std::string>> from_;  // from this node on the layer is active
  std::string failed_;
};

}  // namespace norma::train

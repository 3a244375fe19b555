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

/// Bytes that a layer's ops have saved for backward.
struct LayerBytes {
  std::string layer;  ///< dotted path in the network; "" for what no layer does, as the loss
  int64_t bytes = 0;
};

/// Notes, while it lives, which layer of a network is at work, so that what the tape has can be given to layers: the
/// innermost one that ran. All of one thread.
class LayerNodes : public nn::ModuleObserver {
 public:
  /// `model` lives longer than this.
  explicit LayerNodes(const nn::Module& model);

  void enter(const nn::Module& module) override;
  void leave(const nn::Module& module, const Tensor& input, const Tensor& output) override;

  /// The path of the layer that recorded node number `node` (Node::sequence).
  [[nodiscard]] std::string layer_of(uint64_t node) const;
  /// The innermost layer that an exception ended; "" where none did.
  [[nodiscard]] const std::string& failed() const { return failed_; }
  /// What backward keeps of a tape that was recorded meanwhile: the layer that saves most comes first. A storage that
  /// several ops save counts for the first of them.
  [[nodiscard]] std::vector<LayerBytes> saved(const Tape& tape) const;

 private:
  void mark();

  std::unordered_map<const nn::Module*, std::string> names_;
  std::vector<std::string> open_;                       // layers at work, the innermost last
  std::vector<std::pair<uint64_t, std::string>> from_;  // from this node on the layer is at work
  std::string failed_;
};

}  // namespace norma::train

#pragma once

#include "core/tape.h"
#include "nn/module.h"
#include "nn/module_scope.h"
#include "nn/optim/optimizer.h"
#include "train/ema.h"
#include "train/step_observer.h"

#include <cstdint>
#include <memory>
#include <optional>
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

/// The parts of a training step's memory, in bytes of tensors.
struct MemoryUse {
  int64_t parameters = 0;
  int64_t buffers = 0;
  int64_t gradients = 0;                     ///< of all parameters that are trained
  int64_t optimizer = 0;                     ///< averages and master weights; 0 before the first step
  int64_t averages = 0;                      ///< of the weights (Recipe::model_ema)
  int64_t images = 0;                        ///< in the batch that the activations are of; 0: unknown
  std::vector<LayerBytes> activations = {};  ///< kept for backward, the largest first

  [[nodiscard]] int64_t activation_bytes() const;
  /// The memory for a batch of another size: activations grow with it.
  [[nodiscard]] MemoryUse for_images(int64_t count) const;
};

/// All but the activations.
MemoryUse memory_use(const nn::Module& model, const nn::Optimizer& optimizer, const std::optional<Ema>& ema);

/// "parameters 44.7 MB, gradients 44.7 MB, optimizer 89.4 MB, activations of 256 images 1.2 GB (conv1 102.8 MB, …)",
/// with the largest layers.
std::string to_string(const MemoryUse& use);

/// "512 bytes", "44.7 MB", "1.2 GB".
std::string bytes_text(int64_t bytes);

/// Measures in the last step that it observes the memory that the tape keeps, by layer.
class ActivationObserver : public StepObserver {
 public:
  /// `model` must outlive it.
  explicit ActivationObserver(const nn::Module& model) : model_(model) {}
  std::unique_ptr<ObservedStep> begin_step(int64_t step) override;

  [[nodiscard]] const std::vector<LayerBytes>& activations() const { return activations_; }

 private:
  const nn::Module& model_;
  std::vector<LayerBytes> activations_;
};

}  // namespace norma::train

#pragma once

#include "nn/module.h"
#include "nn/optim/optimizer.h"
#include "train/ema.h"
#include "train/layer_nodes.h"
#include "train/step_observer.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace norma::train {

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
  void start(const ObservedRun& run) override { model_ = &run.model; }
  std::unique_ptr<ObservedStep> begin_step(int64_t step) override;
  void end_step(int64_t /*step*/, double /*loss*/, double /*seconds*/) override {}
  void evaluated(int64_t /*step*/, const Evaluation& /*test*/) override {}

  [[nodiscard]] const std::vector<LayerBytes>& activations() const { return activations_; }

 private:
  const nn::Module* model_ = nullptr;
  std::vector<LayerBytes> activations_;
};

}  // namespace norma::train

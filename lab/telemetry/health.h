#pragma once

#include "core/tensor.h"
#include "lab/telemetry/layer_log.h"
#include "lab/telemetry/telemetry.h"
#include "train/step_observer.h"

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace norma::lab {

/// Elements of x, and how many of its channels (axis 1) are 0 altogether.
struct Look {
  TensorHealth health;
  double dead_channels = 0;  ///< share
};

/// Looks at a floating tensor of rank 2 and more, with elements. Off the tape; x is read twice and nothing of its size
/// is allocated where the host can read it and it has no gaps.
Look look_at(const Tensor& x);

/// The numbers in each layer of one step: outputs in the forward pass, their gradients in the backward pass. `done` is
/// called after the update.
class HealthStep : public train::ObservedStep {
 public:
  /// `table` lives longer.
  HealthStep(const LayerTable& table, int64_t step, std::function<void(HealthSample)> done);

  void after_forward(const Tensor& loss) override;
  void after_backward() override {}
  void after_update() override;

 private:
  void add(size_t layer, const nn::Module& module, const Tensor& input, const Tensor& output);

  const LayerTable& table_;
  std::function<void(HealthSample)> done_;
  HealthSample sample_;
  LayerLog log_;
  /// Outputs by the op that made them: which of its outputs, and which layer of the sample.
  std::unordered_map<const Node*, std::vector<std::pair<size_t, size_t>>> outputs_;
};

}  // namespace norma::lab

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

/// Who looks for the largest element, for those that are not finite and for dead channels.
enum class Scan : uint8_t {
  host,  ///< one pass over the bits, of a copy where the host cannot read x or x has gaps
  ops,   ///< ops of x's device: a few numbers come to the host, and x itself only if an element is not finite
};

/// Looks at a floating tensor of rank 2 and more, with elements. Off the tape. The same figures either way.
Look look_at(const Tensor& x, Scan scan);
/// As fits its device: on the CPU x is read twice, and nothing of its size is allocated.
Look look_at(const Tensor& x);

/// The numbers in each layer of one step: outputs in the forward pass, their gradients in the backward pass. `done` is
/// called after the update.
class HealthStep : public train::ObservedStep {
 public:
  /// `table` lives longer.
  HealthStep(const LayerTable& table, int64_t step, std::function<void(HealthSample)> done);

  void after_forward(const Tensor& loss, double grad_scale) override;
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

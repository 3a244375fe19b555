#pragma once

#include "core/tensor.h"
#include "lab/telemetry/dynamics_parts.h"
#include "lab/telemetry/layer_log.h"
#include "lab/telemetry/telemetry.h"
#include "nn/norm/norm.h"
#include "nn/optim/optimizer.h"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace norma {
struct Node;
class Tape;
}  // namespace norma

namespace norma::lab {

/// Collects LayerDynamics in one step: HealthStep calls it.
class DynamicsReader {
 public:
  /// The table and the optimizer must outlive it. Without an optimizer (null) there are no learning rates.
  DynamicsReader(const LayerTable& table, const DynamicsParts& parts, const nn::Optimizer* optimizer);

  /// As LayerLog::OnOutput.
  void add(size_t layer, const nn::Module& module, const Tensor& input, const Tensor& output);
  /// The tape of the loss is whole; `log` saw its forward pass.
  void after_forward(const Tensor& loss, const LayerLog& log);
  /// The gradients are in .grad, those of the loss times grad_scale.
  void after_backward(double grad_scale);
  DynamicsSample take() { return std::move(sample_); }

 private:
  /// A layer of the sample with its own weight.
  struct Weighted {
    size_t at;  ///< in the sample
    size_t layer;
    Tensor weight;
    Tensor bias;                 ///< undefined: none
    std::shared_ptr<Node> made;  ///< the op that made its output; null: unknown, off the tape, or the layer ran twice
    size_t output_index = 0;
    nn::Invariance invariance = nn::Invariance::none;  ///< of the norm that reads the output
    size_t norm = 0;                                   ///< the layer of that norm
    int64_t runs = 1;                                  ///< forward passes of the layer, without those in backward
  };
  /// Decides for the layers whose products are on `tape` which norm reads them, and forgets the products.
  void find_norms(const Tape& tape, const LayerLog& log);
  void follow(size_t layer, const nn::Norm& norm, const Tensor& input);

  const LayerTable& table_;
  DynamicsParts parts_;
  const nn::Optimizer* optimizer_;
  DynamicsSample sample_;
  std::vector<Weighted> weighted_;
};

/// The share of x's elements at which a norm's slope is below a tenth of its largest. Off the tape.
double saturation_of(const nn::Bend& bend, const Tensor& x);

}  // namespace norma::lab

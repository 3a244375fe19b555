#pragma once

#include "core/tensor.h"
#include "lab/telemetry/dynamics.h"
#include "lab/telemetry/layer_log.h"
#include "lab/telemetry/telemetry.h"
#include "train/step_observer.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace norma {
struct Node;
}  // namespace norma

namespace norma::lab {

/// The health of x's elements, and the share of channels (axis 1) that are all 0.
struct Look {
  TensorHealth health;
  double dead_channels = 0;  ///< share
};

/// The way to find the largest element, elements that are not finite and dead channels.
enum class Scan : uint8_t {
  host,  ///< one pass over the bits; over a copy if the host cannot read x, or x has gaps
  ops,   ///< ops of x's device: a few numbers come to the host, and x itself only if an element is not finite
};

/// Examines a floating tensor of rank 2 or more, with elements. Off the tape. Either way gives the same figures.
Look look_at(const Tensor& x, Scan scan);
/// Takes the way that fits x's device. On the CPU x is read twice, and nothing of its size is allocated.
Look look_at(const Tensor& x);

/// The heads of a recorded attention (ops/attention/attention.h), under the name of a layer; none for another node.
/// Off the tape. The products of queries and keys are computed again, some images at a time.
std::vector<AttentionHead> heads_of(const std::shared_ptr<Node>& node, const std::string& layer);

/// Collects the numbers of each layer in one step: outputs in the forward pass, their gradients in the backward pass.
/// `done` is called after the update.
class HealthStep : public train::ObservedStep {
 public:
  /// `table` must outlive it. With `dynamics` the sample has that reader's, too.
  HealthStep(const LayerTable& table, int64_t step, std::function<void(HealthSample)> done,
             std::unique_ptr<DynamicsReader> dynamics = nullptr);

  void after_forward(const Tensor& loss, double grad_scale) override;
  void after_backward() override;
  void after_update() override;

 private:
  /// A layer that runs several times, as a ViT's qkv for its three parts, has a row for each.
  struct Calls {
    std::vector<int64_t> rows;  ///< of the sample
    size_t again = 0;           ///< calls in further passes of checkpoints, each of which has all of them
  };
  void add(size_t layer, const nn::Module& module, const Tensor& input, const Tensor& output);
  /// Lets the backward pass look at the gradient of a layer's output, for number `layer` of the sample.
  void look_at_gradient(const Tensor& output, int64_t layer);

  /// The layer that made the queries of a recorded attention, behind views. The attention itself may stand in a module
  /// whose operator() nobody calls.
  [[nodiscard]] size_t maker_of_queries(const Node& attention) const;

  const LayerTable& table_;
  std::function<void(HealthSample)> done_;
  std::unique_ptr<DynamicsReader> dynamics_;
  double grad_scale_ = 1;
  HealthSample sample_;
  std::vector<Calls> calls_;                            ///< of each layer
  std::map<size_t, std::vector<AttentionHead>> heads_;  ///< by the maker of queries: checkpoints show the last first
  LayerLog log_;
};

}  // namespace norma::lab

#include "lab/telemetry/dynamics.h"

#include "base/lists.h"
#include "core/autocast.h"
#include "core/tape.h"
#include "data/safetensors.h"
#include "lab/telemetry/visit_tape.h"
#include "nn/checkpoint.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>

namespace norma::lab {

namespace {

/// The factor of the learning rate for each parameter that is trained.
std::unordered_map<const TensorImpl*, double> lr_scales(const nn::Optimizer& optimizer) {
  std::unordered_map<const TensorImpl*, double> scales;
  for (const nn::ParameterGroup& group : optimizer.groups()) {
    for (const auto& [name, x] : group.parameters) {
      scales.emplace(x.impl_pointer().get(), group.lr_scale);
    }
  }
  return scales;
}

/// The squared L2 norm of each tensor; NaN for undefined ones.
std::vector<double> squares_of(const Tensors& xs) {
  Tensors defined;
  for (const Tensor& x : xs) {
    if (x.defined()) {
      defined.push_back(x.detach());
    }
  }
  const std::vector<double> found =
      defined.empty() ? std::vector<double>() : sums_of_squares(defined, defined.front().device()).to_vector<double>();
  size_t next = 0;
  return mapped(xs, [&](const Tensor& x) { return x.defined() ? found[next++] : kNotKnown; });
}

/// The op that made a layer's output, if that is a product with a weight.
std::shared_ptr<Node> maker_of(const Layer& layer, const Tensor& output) {
  const bool multiplies = layer.kind == LayerKind::convolution || layer.kind == LayerKind::linear;
  return multiplies && output.defined() ? output.impl().node : nullptr;
}

}  // namespace

double saturation_of(const nn::Bend& bend, const Tensor& x) {
  const NoGradGuard no_grad;
  const AutocastOff no_autocast;
  const Tensor wide = to(x.detach(), compute_dtype(x.dtype()));
  const Tensor bent = greater(abs(add(mul(wide, bend.scale), bend.shift)), bend.limit);
  return sum(bent).to_vector<double>().front() / static_cast<double>(x.numel());
}

DynamicsReader::DynamicsReader(const LayerTable& table, const DynamicsParts& parts, const nn::Optimizer* optimizer)
    : table_(table), parts_(parts), optimizer_(optimizer) {
  if (optimizer != nullptr) {
    sample_.lr = optimizer->lr();
  }
}

void DynamicsReader::add(size_t layer, const nn::Module& module, const Tensor& input, const Tensor& output) {
  const Layer& place = table_.layers()[layer];
  const auto* norm = dynamic_cast<const nn::Norm*>(&module);
  if (norm != nullptr) {
    follow(layer, *norm, input);
  }
  const auto before =
      std::ranges::find_if(weighted_, [&](const Weighted& weighted) { return weighted.layer == layer; });
  const nn::CheckpointPass pass = nn::checkpoint_pass();
  if (before != weighted_.end()) {
    before->runs += pass == nn::CheckpointPass::again ? 0 : 1;
    // A weight that is used twice has no one norm after it.
    before->made = pass == nn::CheckpointPass::again && before->runs == 1 ? maker_of(place, output) : nullptr;
    before->output_index = output.defined() ? output.impl().output_index : 0;
    before->invariance = nn::Invariance::none;
    return;
  }
  if (pass == nn::CheckpointPass::again) {  // a norm without a weight has its line from the first pass
    return;
  }
  LayerDynamics found{.layer = place.name, .kind = place.kind};
  const Tensor weight = data::tensor_named(module.own_parameters(), "weight");
  const std::optional<nn::Bend> bend = norm != nullptr && parts_.saturation ? norm->bend() : std::nullopt;
  if (bend && input.defined() && is_floating(input.dtype()) && input.numel() > 0) {
    found.saturation = saturation_of(*bend, input);
  }
  if (weight.defined()) {
    weighted_.push_back({.at = sample_.layers.size(),
                         .layer = layer,
                         .weight = weight,
                         .bias = data::tensor_named(module.own_parameters(), "bias"),
                         .made = pass == nn::CheckpointPass::first ? nullptr : maker_of(place, output),
                         .output_index = output.defined() ? output.impl().output_index : 0});
  }
  if (weight.defined() || bend) {
    sample_.layers.push_back(std::move(found));
  }
}

void DynamicsReader::follow(size_t layer, const nn::Norm& norm, const Tensor& input) {
  if (!input.defined() || input.impl().node == nullptr) {
    return;
  }
  for (Weighted& weighted : weighted_) {
    if (weighted.made == input.impl().node && weighted.output_index == input.impl().output_index) {
      weighted.invariance = norm.invariance();
      weighted.norm = layer;
    }
  }
}

void DynamicsReader::after_forward(const Tensor& loss, const LayerLog& log) {
  visit_tape({loss}, [this, &log](const Tape& tape) { find_norms(tape, log); });
}

void DynamicsReader::find_norms(const Tape& tape, const LayerLog& log) {
  // The norm must be all that reads the layer's output, and read it once.
  std::unordered_map<const Node*, Weighted*> makers;
  for (Weighted& weighted : weighted_) {
    if (weighted.made != nullptr && weighted.invariance != nn::Invariance::none) {
      makers.emplace(weighted.made.get(), &weighted);
    }
  }
  std::unordered_map<const Weighted*, int64_t> readers;
  for (const std::shared_ptr<Node>& node : tape.nodes()) {
    for (const Edge& edge : node->inputs) {
      if (const auto maker = makers.find(edge.node.get()); edge.node != nullptr && maker != makers.end()) {
        const bool is_the_norm = log.layer_of_node(node->sequence) == maker->second->norm;
        readers[maker->second] += is_the_norm ? 1 : 2;
      }
    }
  }
  for (Weighted& weighted : weighted_) {
    if (weighted.made != nullptr && readers[&weighted] != 1) {
      weighted.invariance = nn::Invariance::none;
    }
    weighted.made = nullptr;  // the tape goes when backward has run
  }
}

void DynamicsReader::after_backward(double grad_scale) {
  const NoGradGuard no_grad;
  const auto scales = optimizer_ != nullptr && parts_.weights ? lr_scales(*optimizer_)
                                                              : std::unordered_map<const TensorImpl*, double>();
  Tensors weights;
  Tensors biases;
  Tensors gradients;
  for (const Weighted& weighted : weighted_) {
    weights.push_back(parts_.weights ? weighted.weight : Tensor());
    biases.push_back(parts_.weights && weighted.invariance == nn::Invariance::scale ? weighted.bias : Tensor());
    gradients.push_back(parts_.gradients ? weighted.weight.grad() : Tensor());
  }
  const std::vector<double> of_weights = squares_of(weights);
  const std::vector<double> of_biases = squares_of(biases);
  const std::vector<double> of_gradients = squares_of(gradients);
  for (size_t i = 0; i < weighted_.size(); ++i) {
    LayerDynamics& layer = sample_.layers[weighted_[i].at];
    layer.gradient_norm = std::sqrt(of_gradients[i]) / grad_scale;
    layer.weight_norm = std::sqrt(of_weights[i]);
    const auto scale = scales.find(weighted_[i].weight.impl_pointer().get());
    if (weighted_[i].invariance != nn::Invariance::none && scale != scales.end()) {
      const double bias = biases[i].defined() ? of_biases[i] : 0;
      layer.effective_lr = sample_.lr * scale->second / (of_weights[i] + bias);
    }
  }
}

}  // namespace norma::lab

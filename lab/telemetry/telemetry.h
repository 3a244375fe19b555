#pragma once

#include "core/op_profile.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

// What is recorded of a training run beside its result: of every step its loss and time, and of some steps (schedule.h)
// where the time and the memory go, which copies are made, and how the numbers in each layer look. Layers have the
// names of the state dict ("layer1.0.bn1"); "" is what belongs to none, such as the loss.

/// What a layer is, for sums over layers.
enum class LayerKind : uint8_t { norm, convolution, linear, other };
/// "norm", "convolution", "linear", "other"
std::string_view to_string(LayerKind kind);

/// A point of the curve of the training loss.
struct LossPoint {
  int64_t step = 0;    ///< the last of those it stands for
  double seconds = 0;  ///< from the start of the run to the end of that step
  double loss = 0;     ///< mean over the steps since the point before
};

/// An evaluation on the test images.
struct TestPoint {
  int64_t step = 0;    ///< training steps done before it
  double seconds = 0;  ///< from the start of the run to the end of the evaluation
  double loss = 0;
  double accuracy = 0;  ///< in [0, 1]
};

/// Training images per second over single steps, loading included; the first steps and those that are looked into are
/// left out where others remain.
struct Throughput {
  int64_t steps = 0;  ///< that were counted
  double min = 0;
  double median = 0;
  double max = 0;
};

/// Where the seconds of one pass of a step went.
struct PassTime {
  double norm = 0;         ///< in norm layers, with an activation and a residual that the same op adds
  double convolution = 0;  ///< in convolutions, outside of norm layers
  double product = 0;      ///< in matrix products, outside of norm layers
  double rest = 0;         ///< other ops, the tape, what lies between ops

  [[nodiscard]] double total() const { return norm + convolution + product + rest; }
};

/// Where the seconds of a step went, without waiting for its batch: those of the sampled step whose time is the middle
/// one, so that the parts add up.
struct StepTime {
  int64_t samples = 0;  ///< steps that were looked into; 0: none, and nothing else is known
  double forward = 0;   ///< with the loss
  double backward = 0;
  double optimizer = 0;
  /// Empty on devices that work while the host goes on: there the host cannot know what an op takes.
  std::optional<PassTime> forward_split = {};
  std::optional<PassTime> backward_split = {};

  [[nodiscard]] double total() const { return forward + backward + optimizer; }
};

/// What a layer keeps from the forward pass until the backward pass.
struct SavedBytes {
  std::string layer;
  LayerKind kind = LayerKind::other;
  /// Of storages that this layer is the first to save; parameters do not count. The sum over all layers is
  /// Tape::saved_bytes().
  int64_t bytes = 0;
};

/// Copies of one kind in one training step that nobody asked for by name: an op wanted another memory format, or made a
/// copy of an activation or its gradient.
struct LayoutCopy {
  std::string op;  ///< that made it
  std::string layer;
  OpPass pass = OpPass::forward;
  std::string from;  ///< memory format: "contiguous", "channels_last" or "strided"
  std::string to;
  int64_t count = 0;  ///< in one step
  int64_t bytes = 0;  ///< read and written by all of them
};

/// The elements of a tensor.
struct TensorHealth {
  double mean = 0;         ///< NaN where an element is not finite, as the next two
  double deviation = 0;    ///< standard deviation over all elements (divisor: their number)
  double largest = 0;      ///< largest absolute value
  int64_t non_finite = 0;  ///< elements that are NaN or infinite
};

/// The elements of γ or β of a norm layer.
struct ParameterSpread {
  double min = 0;
  double max = 0;
  double mean = 0;
  double deviation = 0;
};

/// How far the statistics of this step's batch lie from the running ones, which evaluation uses and which have taken in
/// this batch already.
struct BatchGap {
  double mean = 0;       ///< root of Σ(batch mean - running mean)² / Σ running variance, over the channels
  double deviation = 0;  ///< root of Σ(batch deviation - running deviation)² / Σ running variance
};

/// A layer with parameters (and a norm without) in one sampled step.
struct LayerHealth {
  std::string layer;
  LayerKind kind = LayerKind::other;
  TensorHealth output;                        ///< with an activation and a residual that the same op has added
  double dead_channels = 0;                   ///< share of the output's channels that are 0 for the whole batch
  std::optional<TensorHealth> gradient = {};  ///< of the loss by the output; none: none arrived
  std::optional<ParameterSpread> gamma = {};  ///< weight of a norm layer
  std::optional<ParameterSpread> beta = {};   ///< bias of a norm layer
  std::optional<BatchGap> gap = {};           ///< of batch norms with running statistics
};

/// All layers in one sampled step, in the order in which they ran.
struct HealthSample {
  int64_t step = 0;
  std::vector<LayerHealth> layers;
};

/// The record of one training run.
struct Telemetry {
  std::vector<LossPoint> losses;  ///< at most 256, each of as many steps
  std::vector<TestPoint> tests;
  Throughput throughput;
  StepTime step_time;
  std::vector<SavedBytes> saved;     ///< after the forward pass of a sampled step, in the order of the layers
  std::vector<LayoutCopy> ledger;    ///< of a sampled step; empty: it made no such copy
  bool ledger_known = false;         ///< false: no step was looked into
  std::vector<HealthSample> health;  ///< at most 3

  /// Of all layers.
  [[nodiscard]] int64_t saved_bytes() const;
};

}  // namespace norma::lab

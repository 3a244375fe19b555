#pragma once

#include "core/op_profile.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

// The record of a training run beside its result. It has the loss and time of every step. For some steps
// (TelemetrySchedule) it shows where time and memory go, which copies are made, and the numbers in each layer. Layers
// have the names of the state dict ("layer1.0.bn1"); "" is for work outside all layers, such as the loss.

/// Stands for a number that is not known.
inline constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

/// The kind of a layer, for sums over layers.
enum class LayerKind : uint8_t { norm, convolution, linear, other };
/// "norm", "convolution", "linear", "other"
std::string_view to_string(LayerKind kind);

/// A point of the curve of the training loss.
struct LossPoint {
  int64_t step = 0;    ///< the last step of this point
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

/// Training images per second over single steps, with loading. The first steps and examined steps are left out if
/// others remain.
struct Throughput {
  int64_t steps = 0;  ///< steps that count
  double min = 0;
  double median = 0;
  double max = 0;
};

/// The parts of the seconds of one pass.
struct PassTime {
  double norm = 0;         ///< in norm layers, with an activation and a residual added by the same op
  double convolution = 0;  ///< in convolutions, outside of norm layers
  double product = 0;      ///< in matrix products, outside of norm layers
  double rest = 0;         ///< other ops, the tape, and the time between ops

  [[nodiscard]] double total() const { return norm + convolution + product + rest; }
};

/// The parts of a step's time, without waiting for its batch. They come from the sampled step of median time, so that
/// they add up.
struct StepTime {
  int64_t samples = 0;  ///< examined steps; 0: none, and nothing else is known
  double forward = 0;   ///< with the loss
  double backward = 0;
  double optimizer = 0;
  /// Files that earlier versions wrote on a GPU have none.
  std::optional<PassTime> forward_split = {};
  std::optional<PassTime> backward_split = {};

  [[nodiscard]] double total() const { return forward + backward + optimizer; }
};

/// The memory that a layer keeps from the forward pass until the backward pass.
struct SavedBytes {
  std::string layer;
  LayerKind kind = LayerKind::other;
  /// Bytes of storages that this layer is the first to save; parameters do not count. All layers together have
  /// Tape::saved_bytes().
  int64_t bytes = 0;
};

/// Implicit copies of one kind in a training step: an op needed another memory format, or copied an activation or its
/// gradient.
struct LayoutCopy {
  std::string op;  ///< the op that made them
  std::string layer;
  OpPass pass = OpPass::forward;
  std::string from;  ///< memory format: "contiguous", "channels_last" or "strided"
  std::string to;
  int64_t count = 0;  ///< in one step
  int64_t bytes = 0;  ///< read and written by all of them
};

/// The elements of a tensor.
struct TensorHealth {
  double mean = 0;         ///< NaN if an element is not finite, as the next two
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

/// The distance of this batch's statistics from the running ones, which evaluation uses and which already include this
/// batch.
struct BatchGap {
  double mean = 0;       ///< root of Σ(batch mean - running mean)² / Σ running variance, over the channels
  double deviation = 0;  ///< root of Σ(batch deviation - running deviation)² / Σ running variance
};

/// A layer with parameters (and a norm without) in one sampled step.
struct LayerHealth {
  std::string layer;
  LayerKind kind = LayerKind::other;
  double input_deviation = kNotKnown;         ///< of a norm: standard deviation of the elements of its input
  TensorHealth output;                        ///< with an activation and a residual added by the same op
  double dead_channels = 0;                   ///< share of the output's channels that are 0 for the whole batch
  std::optional<TensorHealth> gradient = {};  ///< of the loss by the output; none if none arrived
  std::optional<ParameterSpread> gamma = {};  ///< weight of a norm layer
  std::optional<ParameterSpread> beta = {};   ///< bias of a norm layer
  std::optional<BatchGap> gap = {};           ///< of batch norms with running statistics
};

/// How a layer moves in one step. Layers with a weight have one, and norms that bend. NaN: the layer has no such
/// number, or it was not asked for.
struct LayerDynamics {
  std::string layer;
  LayerKind kind = LayerKind::other;
  double gradient_norm = kNotKnown;  ///< L2 norm of the weight's gradient in the whole step, before clipping
  double weight_norm = kNotKnown;    ///< L2 norm of the weight
  /// Learning rate of the step over the squared L2 norm of the weight, if the weight's scale has no effect, since a
  /// norm layer follows whose output does not depend on it (nn::Invariance). The L2 norm includes the layer's bias
  /// unless the norm layer removes that, too.
  double effective_lr = kNotKnown;
  /// Share of the inputs of a bounded norm at which its slope is below a tenth of the largest (nn::Bend).
  double saturation = kNotKnown;
};

/// The largest eigenvalue of the Hessian of the loss, by power iteration.
struct Sharpness {
  double value = kNotKnown;
  double change = kNotKnown;  ///< between the last two estimates, as a share of the last
  int64_t products = 0;       ///< with the Hessian
  double seconds = 0;
  std::string problem;  ///< why there is no value; "" if there is one
};

/// How a network moves in one step.
struct DynamicsSample {
  double lr = kNotKnown;                    ///< of the step, before the factors of single parameters
  std::vector<LayerDynamics> layers;        ///< in the order in which they ran
  std::optional<Sharpness> sharpness = {};  ///< before the update; none: not measured in this step
};

/// A head of attention in one sampled step.
struct AttentionHead {
  std::string layer;                 ///< the one that holds what makes the queries: "blocks.0.attn"
  int64_t head = 0;                  ///< from 0
  double largest_logit = kNotKnown;  ///< largest scaled product of a query and a key that it sees, a mask added
  /// Mean over queries and images of -Σ p log p, with the probabilities p of the keys: 0 where a query sees one key
  /// alone, log(keys) where it sees all alike.
  double entropy = kNotKnown;
};

/// All layers in one sampled step, in the order in which they ran.
struct HealthSample {
  int64_t step = 0;
  std::vector<LayerHealth> layers;
  std::optional<DynamicsSample> dynamics = {};  ///< of the same step; none: not asked for
  /// Heads whose attention the tape of the loss has, in the order of the network: frozen parts are not on it.
  std::vector<AttentionHead> attention = {};
};

/// The record of one training run.
struct Telemetry {
  std::vector<LossPoint> losses;  ///< at most 256, each over as many steps
  std::vector<TestPoint> tests;
  Throughput throughput;
  StepTime step_time;
  std::vector<SavedBytes> saved;     ///< after the forward pass of a sampled step, in the order of the layers
  std::vector<LayoutCopy> ledger;    ///< of a sampled step; empty if it made no such copy
  bool ledger_known = false;         ///< false: no step was examined
  std::vector<HealthSample> health;  ///< at most 3, or 9 with dynamics

  /// The sum over all layers.
  [[nodiscard]] int64_t saved_bytes() const;
};

/// Lists of equal structs are written as an object of columns. Numbers that are no counts have six digits, those of
/// layers four, since a report may hold hundreds of records. NaN and infinity are null.
nlohmann::ordered_json telemetry_to_json(const Telemetry& telemetry);
/// telemetry_to_json() as text.
std::string telemetry_text(const Telemetry& telemetry);
/// Reads such a record. Throws Error that begins with `where` for anything else.
Telemetry telemetry_from_json(const nlohmann::json& json, const std::string& where);

/// The same of one part.
nlohmann::ordered_json step_time_to_json(const StepTime& time);
StepTime step_time_from_json(const nlohmann::json& json, const std::string& where);

}  // namespace norma::lab

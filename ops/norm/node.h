#pragma once

#include "ops/norm/layout.h"
#include "ops/norm/norm.h"
#include "ops/norm/reference.h"

#include <memory>
#include <string>
#include <string_view>

// One norm on its way through the op: norm.cpp computes and records it, backward.cpp calls the kernels for its
// gradients and makes those differentiable.

namespace norma::norm_detail {

// --- norm.cpp -------------------------------------------------------------------------------------------------------

using NormTensors = kernels::NormOperands<Tensor>;
kernels::NormPointers pointers_of(const NormTensors& tensors);

/// Running statistics, and the batch that they take in: see kernels::RunningStatistics.
struct RunningUpdate {
  Tensor mean;  ///< (C), as var
  Tensor var;
  double momentum = 0;
  double var_factor = 1;
  Tensor batches = {};  ///< int64, one element, or undefined
};

/// The arguments of a norm beside x, weight and bias.
struct ForwardOptions {
  NormStatistics* statistics = nullptr;  ///< receives mean and variance
  Tensor fixed_stats = {};               ///< see fixed_stats_of()
  Tensor running_mean = {};              ///< the running statistics that fixed_stats were made of, or undefined
  Tensor running_var = {};
  const RunningUpdate* running = nullptr;  ///< takes the statistics in; the spec must reduce all axes but the channels
  ActOptions then = {};
  /// Not null: the fixed stats are those of all parts of a batch, and depend on x. They were taken over count_of_parts
  /// values of each channel.
  std::shared_ptr<const PartsOfBatch> parts = {};
  double count_of_parts = 0;
};
/// norm_act() for a spec whose axes are sorted and not negative, and arguments that fit. With fixed stats it computes
/// none from x, and the gradient treats mean and variance as constants.
Tensor record_norm(std::string_view op, const Tensor& x, const NormSpec& spec, const Tensor& weight, const Tensor& bias,
                   const ForwardOptions& options);

/// The stats of x: (stats_rows(), sets), see kernels.h. `layout` belongs to x and spec. `var`, if not null, receives
/// the variances, one per set.
Tensor compute_stats(std::string_view op, const NormLayout& layout, const Tensor& x, const NormSpec& spec,
                     Tensor* var = nullptr);
/// Mean and variance of x.
NormStatistics compute_statistics(std::string_view op, const Tensor& x, const NormSpec& spec);

/// A norm by its definition. `stats`, if defined, replace those of x.
NormReference reference_of(const NormLayout& layout, const Tensor& stats, NormReferenceInputs inputs);

kernels::NormProblem problem_of(const NormLayout& layout, const NormSpec& spec, bool fixed_stats);

// --- batch_norms.cpp ------------------------------------------------------------------------------------------------

/// running = (1 - momentum) * running + momentum * factor * batch. Both have sizes (C); computed in float64.
void update_running(std::string_view op, const Tensor& running, const Tensor& batch, double momentum, double factor);

/// Adds one to the number of batches that running statistics have seen; undefined: nobody counts.
void count_batch(Tensor batches);

/// The stats (kernels.h) of a norm whose mean and variance, (C), are constants. They are (kStatsRows, C), of `dtype`.
Tensor fixed_stats_of(std::string_view op, const Tensor& mean, const Tensor& var, double eps, DType dtype);

// --- batch_norm_of_parts.cpp ----------------------------------------------------------------------------------------

/// batch_norm() in training with BatchNormOptions::parts.
Tensor batch_norm_of_parts(std::string_view op, const Tensor& x, const NormSpec& spec, const Tensor& running_mean,
                           const Tensor& running_var, const Tensor& weight, const Tensor& bias,
                           const BatchNormOptions& options, const ActOptions& then);

struct NormNode;
struct NeededGradients;
/// norm_backward() where the stats are those of all parts (NormNode::parts).
Tensors norm_backward_of_parts(const NormNode& node, const Tensor& dy, NeededGradients needs);

// --- backward.cpp ---------------------------------------------------------------------------------------------------

/// A norm as backward needs it: x, weight, stats and bits of its operands as the caller gave them, and bias and
/// residual where z is computed again. Of bits there is one per element for relu behind a residual.
struct NormNode : NormTensors {
  std::string op;
  NormSpec spec;
  bool fixed_stats = false;
  bool affine = false;  ///< there was a weight or a bias
  DType bias_dtype = DType::float32;
  std::shared_ptr<const PartsOfBatch> parts = {};  ///< see ForwardOptions
  double count_of_parts = 0;
};

/// The gradients that are wanted.
struct NeededGradients {
  bool x;
  bool weight;
  bool bias;
  bool residual;
};

/// The gradients of x, weight, bias and residual for dy; undefined where they are not wanted. 16-bit gradients are
/// rounded once.
Tensors norm_backward(const NormNode& node, const Tensor& dy, NeededGradients needs);
/// dy where node.bits are set, else 0.
Tensor mask_by_bits(const NormNode& node, const Tensor& dy);

/// norm_backward() as an op of its own on the tape, for higher derivatives.
Tensors record_norm_backward(const NormNode& node, const Tensor& dy, NeededGradients needs);

}  // namespace norma::norm_detail

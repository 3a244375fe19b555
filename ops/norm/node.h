#pragma once

#include "ops/norm/layout.h"
#include "ops/norm/norm.h"

#include <functional>
#include <string>
#include <string_view>

// One norm on its way through the op. node.cpp computes and records it and calls the kernels for its gradients,
// derivatives.cpp composes gradients of differentiable ops, and reference.cpp takes the place of the kernels.

namespace norma {
class BackwardContext;
}

namespace norma::norm_detail {

using NormTensors = kernels::NormOperands<Tensor>;
struct NormNode;

/// The gradients that are wanted.
struct NeededGradients {
  bool x;
  bool weight;
  bool bias;
  bool residual;
};
/// Does what norm_backward() does.
using NormBackward = std::function<Tensors(const NormNode& node, const Tensor& dy, NeededGradients needs)>;

/// A norm as backward needs it: x, weight, stats and bits of its operands as the caller gave them, and bias and
/// residual where z is computed again. Of bits there is one per element for relu behind a residual.
struct NormNode : NormTensors {
  std::string op;
  NormSpec spec;
  bool fixed_stats = false;
  bool affine = false;  ///< there was a weight or a bias
  DType bias_dtype = DType::float32;
  NormBackward backward = {};  ///< see ForwardOptions
};

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
  /// Not empty: takes the place of norm_backward(), as the fixed stats depend on x. There are no higher derivatives.
  NormBackward backward = {};
};

// --- node.cpp -------------------------------------------------------------------------------------------------------

/// norm_act() for a spec whose axes are sorted and not negative, and arguments that fit. With fixed stats it computes
/// none from x, and the gradient treats mean and variance as constants.
Tensor record_norm(std::string_view op, const Tensor& x, const NormSpec& spec, const Tensor& weight, const Tensor& bias,
                   const ForwardOptions& options);
/// The gradients of x, weight, bias and residual for dy; undefined where they are not wanted. 16-bit gradients are
/// rounded once.
Tensors norm_backward(const NormNode& node, const Tensor& dy, NeededGradients needs);
/// dy where node.bits are set, else 0.
Tensor mask_by_bits(const NormNode& node, const Tensor& dy);
/// One bit per element of y: 1 if it is positive or NaN.
void write_bits(std::string_view op, const Tensor& y, const Tensor& bits);

/// The tensors of a node that the tape keeps, and the node with those that it has kept.
Tensors kept(const NormTensors& tensors);
NormNode with_kept(const NormNode& node, const BackwardContext& c);

/// The stats of x: (kStatsRows, sets), see kernels.h.
/// `layout` belongs to x and spec. `var`, if not null, receives the variances, one per set.
Tensor compute_stats(std::string_view op, const NormLayout& layout, const Tensor& x, const NormSpec& spec,
                     Tensor* var = nullptr);
/// The same, as backward takes them.
Tensor stats_for_backward(std::string_view op, const NormNode& node);
/// A row of stats, as a view: a number for each set, in the order of the sets in memory.
Tensor stats_row(const Tensor& stats, int64_t row);
/// Mean and variance of x.
NormStatistics compute_statistics(std::string_view op, const Tensor& x, const NormSpec& spec);
/// The stats (kernels.h) of a norm whose mean and variance, (C), are constants. They are (kStatsRows, C), of `dtype`.
Tensor fixed_stats_of(std::string_view op, const Tensor& mean, const Tensor& var, double eps, DType dtype);

/// running = (1 - momentum) * running + momentum * factor * batch. Both have sizes (C); computed in float64.
void update_running(std::string_view op, const Tensor& running, const Tensor& batch, double momentum, double factor);
/// Adds one to the number of batches that running statistics have seen; undefined: nobody counts.
void count_batch(Tensor batches);

// --- derivatives.cpp ------------------------------------------------------------------------------------------------

/// norm_backward() as an op of its own on the tape, for higher derivatives.
Tensors record_norm_backward(const NormNode& node, const Tensor& dy, NeededGradients needs);

// --- reference.cpp --------------------------------------------------------------------------------------------------

/// Does the work of the forward kernels by the definition: y, bits and, unless they are fixed, stats and var.
void forward_by_reference(std::string_view op, const NormLayout& layout, const NormSpec& spec, bool fixed_stats,
                          const NormTensors& tensors);
/// norm_backward() by the definition. x must not be empty.
Tensors backward_by_reference(const NormNode& node, const NormLayout& layout, const Tensor& dy, NeededGradients needs);

}  // namespace norma::norm_detail

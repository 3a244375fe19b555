#include "nn/optim/clip.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/op_profile.h"
#include "core/tape.h"
#include "nn/optim/optimizer.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <cmath>
#include <limits>
#include <string_view>

namespace norma::nn {
namespace {

/// Units of x, where the other axes have size 1; of rank 0 for an x of rank 0 or 1.
struct Units {
  ScaledByLargest scaled;
  Tensor root;  ///< the 2-norm of the quotient, at least 1: the norm itself may leave the dtype
  Tensor norm;
};

Units units_of(const Tensor& x) {
  const Axes axes = axes_from(1, x.rank());
  const ScaledByLargest scaled = scaled_by_largest(x, axes, {.keepdim = x.rank() > 1});
  const Tensor root = sqrt(sum(mul(scaled.quotient, scaled.quotient), axes, {.keepdim = x.rank() > 1}));
  return {scaled, clamp(root, 1, std::numeric_limits<double>::infinity()), mul(scaled.largest, root)};
}

}  // namespace

ScaledByLargest scaled_by_largest(const Tensor& x, const Axes& axes, const ReduceOptions& options) {
  const Tensor largest = max(abs(x), axes, options);
  constexpr double kLeast = std::numeric_limits<float>::min();
  return {div(x, clamp(largest, kLeast, std::numeric_limits<double>::infinity())), largest};
}

Tensor clip_grad_norm_(const Tensors& parameters, double max_norm) {
  constexpr std::string_view op = "clip_grad_norm_";
  const OpPassGuard pass(OpPass::optimizer);
  check(max_norm > 0, op, "max_norm: expected a positive number, got {}", max_norm);
  const Tensors gradients = gradients_of(parameters);
  if (gradients.empty()) {
    return zeros({}, {.dtype = DType::float64});
  }
  const Tensor clipping = clipping_of(sums_of_squares(gradients, gradients[0].device()), max_norm);
  scale_in_place(op, gradients, select(clipping, 0, 1));
  return select(clipping, 0, 0);
}

void clip_grad_value_(const Tensors& parameters, double limit) {
  constexpr std::string_view op = "clip_grad_value_";
  const OpPassGuard pass(OpPass::optimizer);
  check(limit >= 0, op, "limit: expected a number >= 0, got {}", limit);
  cut_off_in_place(op, gradients_of(parameters), limit);
}

void adaptive_clip_grad(const Tensors& parameters, const AdaptiveClipOptions& options) {
  constexpr std::string_view op = "adaptive_clip_grad";
  const NoGradGuard no_grad;
  const OpPassGuard pass(OpPass::optimizer);
  check(std::isfinite(options.factor) && options.factor > 0, op, "factor: expected a finite positive number, got {}",
        options.factor);
  check(std::isfinite(options.eps) && options.eps >= 0, op, "eps: expected a finite number of at least 0, got {}",
        options.eps);
  for (const Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) {
      continue;
    }
    const Tensor gradient = parameter.grad().detach();
    const DType dtype = compute_dtype(gradient.dtype());
    const Tensor wide = to(gradient, dtype);
    const Units units = units_of(wide);
    const Tensor most =
        mul(clamp(units_of(to(parameter.detach(), dtype)).norm, options.eps, std::numeric_limits<double>::infinity()),
            options.factor);
    copy_into(where(greater(most, units.norm), wide, mul(units.scaled.quotient, div(most, units.root))), gradient);
  }
}

}  // namespace norma::nn

#include "core/autocast.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"
#include "ops/map_norm/map_norm.h"
#include "ops/norm/node.h"
#include "ops/shape/copy.h"

#include <algorithm>
#include <array>
#include <iterator>

// Backward as an op of its own, for higher derivatives: its values are those of the kernels, its derivatives those of
// the same gradients composed of differentiable functions.

namespace norma {

using namespace norm_kernels;

namespace {

/// dy, x, weight, bias, residual: what the gradients depend on.
constexpr size_t kInputs = 5;

Tensors defined_ones(const Tensors& tensors) {
  Tensors result;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(result), [](const Tensor& x) { return x.defined(); });
  return result;
}

/// The gradients of x, weight, bias and residual, in differentiable functions.
Tensors composed_gradients(const SavedNorm& norm, const Tensor& dy, NeededGradients needs) {
  const Tensor dz = norm.activation == Activation::identity ? dy : composed_activation_backward(norm, dy);
  Tensors gradients = composed_backward(norm, dz, needs);
  gradients.push_back(needs.residual ? to(dz, dy.dtype()) : Tensor{});
  return gradients;
}

}  // namespace

Tensors norm_kernels::recorded_backward(const SavedNorm& norm, const Tensor& dy, NeededGradients needs) {
  Tensors gradients;
  {
    const NoGradGuard off;
    gradients = fused_backward(norm, dy, needs);
  }
  const bool passes_dy = needs.residual && norm.activation == Activation::identity;
  NeededGradients recorded = needs;
  if (passes_dy) {
    gradients[3] = {};  // it is dy itself
    recorded.residual = false;
  }
  const std::array<Tensor, kInputs> inputs{dy, norm.x, norm.weight, norm.bias, norm.residual};
  Tensors saved = defined_ones({inputs.begin(), inputs.end()});
  saved.push_back(norm.rows);
  if (norm.bits.defined()) {
    saved.push_back(norm.bits);
  }
  SavedNorm fixed = norm;
  fixed.x = fixed.rows = fixed.weight = fixed.bias = fixed.residual = fixed.bits = {};
  std::array<bool, kInputs> there{};
  for (size_t i = 0; i < kInputs; ++i) {
    there[i] = inputs[i].defined();
  }
  record(norm.op + "_backward", {inputs.begin(), inputs.end()}, defined_ones(gradients), saved,
         [fixed, there, recorded, has_bits = norm.bits.defined()](const Tensors& given,
                                                                  const BackwardContext& c) -> Tensors {
           size_t at = 0;
           Tensors now(kInputs);
           for (size_t i = 0; i < kInputs; ++i) {
             now[i] = there[i] ? c.saved(at++) : Tensor{};
           }
           SavedNorm again = fixed;
           again.rows = c.saved(at++).detach();
           again.bits = has_bits ? c.saved(at).detach() : Tensor{};
           const auto composed = [&](const Tensors& in) {
             again.x = in[1];
             again.weight = in[2];
             again.bias = in[3];
             again.residual = in[4];
             return defined_ones(composed_gradients(again, in[0], recorded));
           };
           return gradients_of_composed(composed, now, given, c);
         });
  if (passes_dy) {
    gradients[3] = dy;
  }
  return gradients;
}

Tensors normalize_backward(const Tensor& dy, const Tensor& x, const NormSpec& spec, const Tensor& weight,
                           const Tensor& bias) {
  constexpr std::string_view op = "normalize_backward";
  SavedNorm norm{.op = "normalize", .spec = checked_spec(op, x, spec)};
  check_defined(op, "dy", dy);
  check_sizes(op, "dy", dy, x.sizes());
  check_dtype(op, "dy", dy, x.dtype());
  const Sizes affine_sizes = sizes_along(x, norm.spec.affine);
  if (weight.defined()) {
    check_sizes(op, "weight", weight, affine_sizes);
    check_parameter(op, "weight", weight, x);
  }
  if (bias.defined()) {
    check_sizes(op, "bias", bias, affine_sizes);
    check_parameter(op, "bias", bias, x);
  }
  norm.affine = weight.defined() || bias.defined();
  norm.bias_dtype = bias.defined() ? bias.dtype() : x.dtype();
  norm.x = x;
  norm.weight = weight;
  norm.rows = x.numel() == 0 ? zeros({statistics_rows(norm.spec), 0}, {.dtype = compute_dtype(x.dtype())})
                             : statistics_rows_of(op, x, norm.spec, nullptr, norm.affine);
  Tensors gradients = recorded_backward(norm, dy, {true, weight.defined(), bias.defined(), false});
  gradients.pop_back();
  return gradients;
}

}  // namespace norma

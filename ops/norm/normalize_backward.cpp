#include "core/autocast.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"
#include "ops/norm/implementation.h"
#include "ops/norm/map_norm.h"
#include "ops/shape/copy.h"

#include <array>

// Backward as an op of its own, for higher derivatives: its values are those of the kernels, its derivatives those of
// the same gradients composed of differentiable functions.

namespace norma {

using namespace norm_kernels;

namespace {

class GradOn {
 public:
  GradOn() : before_(grad_enabled()) { set_grad_enabled(true); }
  ~GradOn() { set_grad_enabled(before_); }
  GradOn(const GradOn&) = delete;
  GradOn& operator=(const GradOn&) = delete;

 private:
  bool before_;
};

/// dy, x, weight, bias, residual: what the gradients depend on.
constexpr size_t kInputs = 5;

/// The gradients of x, weight, bias and residual, in differentiable functions.
Tensors composed_gradients(const SavedNorm& norm, const Tensor& dy, NeededGradients needs) {
  const Tensor dz = norm.activation == Activation::identity ? dy : composed_activation_backward(norm, dy);
  Tensors gradients = composed_backward(norm, dz, needs);
  gradients.push_back(needs.residual ? to(dz, dy.dtype()) : Tensor{});
  return gradients;
}

/// The gradients of sum(gradients * given) for the inputs.
Tensors second_backward(const SavedNorm& norm, const Tensors& inputs, NeededGradients needs, const Tensors& given,
                        const BackwardContext& c) {
  const Tensors gradients = composed_gradients(norm, inputs[0], needs);
  Tensors roots;
  Tensors starts;
  size_t next = 0;
  for (const Tensor& gradient : gradients) {
    if (!gradient.defined()) {
      continue;
    }
    const Tensor& start = given[next++];
    if (start.defined() && gradient.requires_grad()) {
      roots.push_back(gradient);
      starts.push_back(start);
    }
  }
  return roots.empty() ? Tensors(kInputs) : needed_gradients(roots, starts, inputs, c);
}

}  // namespace

Tensors norm_kernels::needed_gradients(const Tensors& roots, const Tensors& starts, const Tensors& inputs,
                                       const BackwardContext& c) {
  Tensors wanted;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (c.needs_grad(i)) {
      wanted.push_back(inputs[i]);
    }
  }
  const Tensors found = grad(roots, wanted, starts, {.create_graph = c.create_graph()});
  Tensors result(inputs.size());
  size_t next = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (c.needs_grad(i)) {
      result[i] = found[next++];
    }
  }
  return result;
}

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
  Tensors saved;
  for (const Tensor& x : inputs) {
    if (x.defined()) {
      saved.push_back(x);
    }
  }
  saved.push_back(norm.rows);
  if (norm.bits.defined()) {
    saved.push_back(norm.bits);
  }
  Tensors outputs;
  for (const Tensor& gradient : gradients) {
    if (gradient.defined()) {
      outputs.push_back(gradient);
    }
  }
  SavedNorm fixed = norm;
  fixed.x = fixed.rows = fixed.weight = fixed.bias = fixed.residual = fixed.bits = {};
  std::array<bool, kInputs> there{};
  for (size_t i = 0; i < kInputs; ++i) {
    there[i] = inputs[i].defined();
  }
  record(norm.op + "_backward", {inputs.begin(), inputs.end()}, outputs, saved,
         [fixed, there, recorded, has_bits = norm.bits.defined()](const Tensors& given,
                                                                  const BackwardContext& c) -> Tensors {
           size_t at = 0;
           Tensors again(kInputs);
           for (size_t i = 0; i < kInputs; ++i) {
             if (!there[i]) {
               continue;
             }
             again[i] = c.saved(at++);
             if (!c.create_graph()) {  // a tape of its own, for this call
               again[i] = again[i].detach();
               if (c.needs_grad(i)) {
                 again[i].set_requires_grad();
               }
             }
           }
           SavedNorm now = fixed;
           now.rows = c.saved(at++).detach();
           now.bits = has_bits ? c.saved(at).detach() : Tensor{};
           now.x = again[1];
           now.weight = again[2];
           now.bias = again[3];
           now.residual = again[4];
           const GradOn on;
           return second_backward(now, again, recorded, given, c);
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
                             : statistics_rows_of(op, x, norm.spec);
  Tensors gradients = recorded_backward(norm, dy, {true, weight.defined(), bias.defined(), false});
  gradients.pop_back();
  return gradients;
}

}  // namespace norma

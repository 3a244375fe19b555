#include "nn/optim/clip.h"

#include "core/factory.h"
#include "core/op_profile.h"
#include "core/tape.h"
#include "ops/optimizer/optimizer.h"
#include "ops/shape/view.h"

#include <string_view>

namespace norma::nn {
namespace {

/// The gradients of those that have one.
Tensors gradients_of(const Tensors& parameters) {
  Tensors gradients;
  for (const Tensor& x : parameters) {
    if (x.grad().defined()) {
      gradients.push_back(x.grad());
    }
  }
  return gradients;
}

}  // namespace

Tensor clip_gradients_by_norm(const Tensors& parameters, double max_norm) {
  constexpr std::string_view op = "clip_gradients_by_norm";
  const OpPassGuard pass(OpPass::optimizer);
  check(max_norm > 0, op, "max_norm: expected a positive number, got {}", max_norm);
  const Tensors gradients = gradients_of(parameters);
  if (gradients.empty()) {
    return zeros({}, {.dtype = DType::float64});
  }
  const Tensor clipping = clipping_of(sums_of_squares(gradients, gradients[0].device()), max_norm);
  for (const Tensor& gradient : gradients) {
    scale_in_place(op, gradient, select(clipping, 0, 1));
  }
  return select(clipping, 0, 0);
}

void clip_gradients_by_value(const Tensors& parameters, double limit) {
  constexpr std::string_view op = "clip_gradients_by_value";
  const OpPassGuard pass(OpPass::optimizer);
  check(limit >= 0, op, "limit: expected a number >= 0, got {}", limit);
  for (const Tensor& gradient : gradients_of(parameters)) {
    cut_off_in_place(op, gradient, limit);
  }
}

}  // namespace norma::nn

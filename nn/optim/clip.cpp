#include "nn/optim/clip.h"

#include "core/op_profile.h"
#include "ops/optimizer/optimizer.h"

#include <cmath>
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

double clip_gradients_by_norm(const Tensors& parameters, double max_norm) {
  constexpr std::string_view op = "clip_gradients_by_norm";
  const OpPassGuard pass(OpPass::optimizer);
  check(max_norm > 0, op, "max_norm: expected a positive number, got {}", max_norm);
  const Tensors gradients = gradients_of(parameters);
  if (gradients.empty()) {
    return 0;
  }
  double total = 0;
  for (const double sum : sums_of_squares(gradients, gradients[0].device()).to_vector<double>()) {
    total += sum;
  }
  const double norm = std::sqrt(total);
  // As in PyTorch: the small number keeps the result below max_norm in spite of rounding.
  const double scale = max_norm / (norm + 1e-6);
  if (scale < 1) {
    for (const Tensor& gradient : gradients) {
      scale_in_place(op, gradient, scale);
    }
  }
  return norm;
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

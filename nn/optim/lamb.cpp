#include "nn/optim/lamb.h"

#include "core/factory.h"
#include "nn/optim/gradients.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"

#include <cmath>
#include <limits>
#include <utility>

namespace norma::nn {
namespace {

Tensor norm_of(const Tensor& x) {
  return sqrt(sum(mul(x, x)));
}

/// |p| / |u|, or 1 where either is 0.
Tensor trust_ratio(const Tensor& parameter, const Tensor& direction) {
  const Tensor weight = norm_of(parameter);
  const Tensor length = norm_of(direction);
  const Tensor one = ones_like(weight);
  return where(greater(weight, 0), where(greater(length, 0), div(weight, length), one), one);
}

}  // namespace

Lamb::Lamb(std::vector<ParameterGroup> groups, const LambOptions& options)
    : Optimizer(std::move(groups), options.lr), options_(options) {
  check(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1, "lamb",
        "beta1, beta2: expected values in [0, 1), got {}, {}", options.beta1, options.beta2);
  check_not_negative("lamb", "eps", options.eps);
  check_not_negative("lamb", "max_grad_norm", options.max_grad_norm);
}

void Lamb::begin_step() {
  divisor_ = {};
  const Tensors gradients = gradients_of(parameters());
  if (options_.max_grad_norm > 0 && !gradients.empty()) {
    const Tensor norm = sqrt(sum(sums_of_squares(gradients, gradients[0].device())));
    divisor_ = clamp(div(norm, options_.max_grad_norm * grad_scale()), 1, std::numeric_limits<double>::infinity());
  }
}

void Lamb::update(const std::vector<Update>& updates) {
  const double correction1 = 1 - std::pow(options_.beta1, static_cast<double>(steps()));
  const double correction2 = 1 - std::pow(options_.beta2, static_cast<double>(steps()));
  for (const auto& [parameter, gradient, state, group] : updates) {
    Tensor p = parameter;
    for (Tensor& average : *state) {
      if (!average.defined()) {
        average = zeros_like(parameter);
      }
    }
    const Tensor slope = divisor_.defined() ? div(gradient, to(divisor_, gradient.dtype())) : gradient;
    Tensor& mean = state->front();
    Tensor& square = state->back();
    add_(mul_(mean, options_.beta1), mul(slope, 1 - options_.beta1));
    add_(mul_(square, options_.beta2), mul(mul(slope, slope), 1 - options_.beta2));
    const Tensor spread = add(div(sqrt(square), std::sqrt(correction2)), options_.eps);
    Tensor direction = div(div(mean, correction1), spread);
    if (group->weight_decay != 0) {
      direction = add(direction, mul(parameter, group->weight_decay));
      direction = mul(direction, trust_ratio(parameter, direction));
    }
    sub_(p, mul(direction, lr() * group->lr_scale));
  }
}

}  // namespace norma::nn

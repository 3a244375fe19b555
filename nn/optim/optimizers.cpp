#include "nn/optim/optimizers.h"

#include "core/factory.h"
#include "nn/optim/optimizer.h"
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

Sgd::Sgd(std::vector<ParameterGroup> groups, const SgdOptions& options)
    : Optimizer(std::move(groups), options.lr), options_(options) {
  check_not_negative("sgd", "momentum", options.momentum);
  check(std::isfinite(options.dampening), "sgd", "dampening: expected a finite number, got {}", options.dampening);
  check(!options.nesterov || (options.momentum > 0 && options.dampening == 0), "sgd",
        "nesterov: expected momentum > 0 and dampening 0, got momentum {}, dampening {}", options.momentum,
        options.dampening);
}

void Sgd::update(const Tensor& parameter, const Tensor& gradient, Tensors& state, const ParameterGroup& group) {
  const bool first = !state[0].defined();
  if (options_.momentum != 0 && first) {
    state[0] = zeros_like(parameter);
  }
  // The first velocity is the slope itself. Nesterov looks ahead along the velocity: its step is g + momentum · v.
  sgd_step(parameter, gradient, options_.momentum != 0 ? state[0] : Tensor(),
           {.rate = lr() * group.lr_scale,
            .weight_decay = group.weight_decay,
            .momentum = first ? 0 : options_.momentum,
            .share = first ? 1 : 1 - options_.dampening,
            .own = options_.nesterov ? 1.0 : 0.0,
            .along = options_.nesterov ? options_.momentum : 1});
}

AdamW::AdamW(std::vector<ParameterGroup> groups, const AdamWOptions& options)
    : Optimizer(std::move(groups), options.lr), options_(options) {
  check(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1, "adamw",
        "beta1, beta2: expected values in [0, 1), got {}, {}", options.beta1, options.beta2);
  check_not_negative("adamw", "eps", options.eps);
}

void AdamW::update(const Tensor& parameter, const Tensor& gradient, Tensors& state, const ParameterGroup& group) {
  for (Tensor& average : state) {
    if (!average.defined()) {
      average = zeros_like(parameter);
    }
  }
  const double rate = lr() * group.lr_scale;
  const double correction1 = 1 - std::pow(options_.beta1, static_cast<double>(steps()));
  const double correction2 = 1 - std::pow(options_.beta2, static_cast<double>(steps()));
  adamw_step(parameter, gradient, state[0], state[1],
             {.beta1 = options_.beta1,
              .beta2 = options_.beta2,
              .eps = options_.eps,
              .shrink = 1 - rate * group.weight_decay,
              .step_size = rate / correction1,
              .scale = 1 / std::sqrt(correction2)});
}

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

void Lamb::update(const Tensor& parameter, const Tensor& gradient, Tensors& state, const ParameterGroup& group) {
  Tensor p = parameter;
  for (Tensor& average : state) {
    if (!average.defined()) {
      average = zeros_like(parameter);
    }
  }
  const Tensor slope = divisor_.defined() ? div(gradient, to(divisor_, gradient.dtype())) : gradient;
  Tensor& mean = state[0];
  Tensor& square = state[1];
  add_(mul_(mean, options_.beta1), mul(slope, 1 - options_.beta1));
  add_(mul_(square, options_.beta2), mul(mul(slope, slope), 1 - options_.beta2));
  const double correction1 = 1 - std::pow(options_.beta1, static_cast<double>(steps()));
  const double correction2 = 1 - std::pow(options_.beta2, static_cast<double>(steps()));
  const Tensor spread = add(div(sqrt(square), std::sqrt(correction2)), options_.eps);
  Tensor direction = div(div(mean, correction1), spread);
  if (group.weight_decay != 0) {
    direction = add(direction, mul(parameter, group.weight_decay));
    direction = mul(direction, trust_ratio(parameter, direction));
  }
  sub_(p, mul(direction, lr() * group.lr_scale));
}

RmsPropTf::RmsPropTf(std::vector<ParameterGroup> groups, const RmsPropTfOptions& options)
    : Optimizer(std::move(groups), options.lr), options_(options) {
  check(options.alpha >= 0 && options.alpha <= 1, "rmsprop_tf", "alpha: expected a value in [0, 1], got {}",
        options.alpha);
  check_not_negative("rmsprop_tf", "eps", options.eps);
  check_not_negative("rmsprop_tf", "momentum", options.momentum);
}

void RmsPropTf::update(const Tensor& parameter, const Tensor& gradient, Tensors& state, const ParameterGroup& group) {
  Tensor p = parameter;
  Tensor& squares = state[0];
  Tensor& velocity = state[1];
  if (!squares.defined()) {
    squares = ones_like(parameter);
  }
  const Tensor slope = group.weight_decay == 0 ? gradient : add(gradient, mul(parameter, group.weight_decay));
  add_(squares, mul(sub(mul(slope, slope), squares), 1 - options_.alpha));
  Tensor step = mul(div(slope, sqrt(add(squares, options_.eps))), lr() * group.lr_scale);
  if (options_.momentum > 0) {
    velocity = velocity.defined() ? add(mul(velocity, options_.momentum), step) : step;
    step = velocity;
  }
  sub_(p, step);
}

}  // namespace norma::nn

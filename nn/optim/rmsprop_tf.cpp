#include "nn/optim/rmsprop_tf.h"

#include "core/factory.h"
#include "ops/pointwise/pointwise.h"

#include <utility>

namespace norma::nn {

RmsPropTf::RmsPropTf(std::vector<ParameterGroup> groups, const RmsPropTfOptions& options)
    : Optimizer(std::move(groups), options.lr), options_(options) {
  check(options.alpha >= 0 && options.alpha <= 1, "rmsprop_tf", "alpha: expected a value in [0, 1], got {}",
        options.alpha);
  check_not_negative("rmsprop_tf", "eps", options.eps);
  check_not_negative("rmsprop_tf", "momentum", options.momentum);
}

void RmsPropTf::update(const std::vector<Update>& updates) {
  for (const auto& [parameter, gradient, state, group] : updates) {
    Tensor p = parameter;
    Tensor& squares = state->front();
    Tensor& velocity = state->back();
    if (!squares.defined()) {
      squares = ones_like(parameter);
    }
    const Tensor slope = group->weight_decay == 0 ? gradient : add(gradient, mul(parameter, group->weight_decay));
    add_(squares, mul(sub(mul(slope, slope), squares), 1 - options_.alpha));
    Tensor step = mul(div(slope, sqrt(add(squares, options_.eps))), lr() * group->lr_scale);
    if (options_.momentum > 0) {
      velocity = velocity.defined() ? add(mul(velocity, options_.momentum), step) : step;
      step = velocity;
    }
    sub_(p, step);
  }
}

}  // namespace norma::nn

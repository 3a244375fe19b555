#include "nn/optim/sgd.h"

#include "core/factory.h"
#include "ops/optimizer/optimizer.h"

#include <cmath>
#include <utility>

namespace norma::nn {

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

}  // namespace norma::nn

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

void Sgd::update(const std::vector<Update>& updates) {
  std::vector<SgdUpdate> steps;
  for (const Update& update : updates) {
    Tensor& velocity = update.state->front();
    const bool first = !velocity.defined();
    if (options_.momentum != 0 && first) {
      velocity = zeros_like(update.parameter);
    }
    // The first velocity is the slope itself. Nesterov looks ahead along the velocity: its step is g + momentum · v.
    steps.push_back({.parameter = update.parameter,
                     .gradient = update.gradient,
                     .velocity = options_.momentum != 0 ? velocity : Tensor(),
                     .step = {.rate = lr() * update.group->lr_scale,
                              .weight_decay = update.group->weight_decay,
                              .momentum = first ? 0 : options_.momentum,
                              .share = first ? 1 : 1 - options_.dampening,
                              .own = options_.nesterov ? 1.0 : 0.0,
                              .along = options_.nesterov ? options_.momentum : 1}});
  }
  sgd_step(steps);
}

}  // namespace norma::nn

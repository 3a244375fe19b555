#include "nn/optim/adamw.h"

#include "core/factory.h"
#include "ops/optimizer/optimizer.h"

#include <cmath>
#include <utility>

namespace norma::nn {

AdamW::AdamW(std::vector<ParameterGroup> groups, const AdamWOptions& options)
    : Optimizer(std::move(groups), options.lr), options_(options) {
  check(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1, "adamw",
        "beta1, beta2: expected values in [0, 1), got {}, {}", options.beta1, options.beta2);
  check_not_negative("adamw", "eps", options.eps);
}

void AdamW::update(const std::vector<Update>& updates) {
  const double correction1 = 1 - std::pow(options_.beta1, static_cast<double>(steps()));
  const double correction2 = 1 - std::pow(options_.beta2, static_cast<double>(steps()));
  std::vector<AdamWUpdate> steps;
  for (const Update& update : updates) {
    for (Tensor& average : *update.state) {
      if (!average.defined()) {
        average = zeros_like(update.parameter);
      }
    }
    const double rate = lr() * update.group->lr_scale;
    steps.push_back({.parameter = update.parameter,
                     .gradient = update.gradient,
                     .average = update.state->front(),
                     .square_average = update.state->back(),
                     .step = {.beta1 = options_.beta1,
                              .beta2 = options_.beta2,
                              .eps = options_.eps,
                              .shrink = 1 - rate * update.group->weight_decay,
                              .step_size = rate / correction1,
                              .scale = 1 / std::sqrt(correction2)}});
  }
  adamw_step(steps);
}

}  // namespace norma::nn

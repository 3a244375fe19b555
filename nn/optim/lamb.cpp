#include "nn/optim/lamb.h"

#include "core/factory.h"
#include "nn/optim/gradients.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"

#include <cmath>
#include <limits>
#include <utility>

namespace norma::nn {

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
  std::vector<LambUpdate> steps;
  for (const Update& update : updates) {
    for (Tensor& average : *update.state) {
      if (!average.defined()) {
        average = zeros_like(update.parameter);
      }
    }
    steps.push_back(
        {.parameter = update.parameter,
         .gradient = update.gradient,
         .average = update.state->front(),
         .square_average = update.state->back(),
         .step = {.beta1 = options_.beta1,
                  .beta2 = options_.beta2,
                  .eps = options_.eps,
                  .correction1 = 1 - std::pow(options_.beta1, static_cast<double>(this->steps())),
                  .correction2 = std::sqrt(1 - std::pow(options_.beta2, static_cast<double>(this->steps()))),
                  .weight_decay = update.group->weight_decay,
                  .rate = lr() * update.group->lr_scale}});
  }
  lamb_step(steps, divisor_);
}

}  // namespace norma::nn

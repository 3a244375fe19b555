#include "nn/optim/optimizers.h"

#include "core/factory.h"
#include "nn/optim/optimizer.h"
#include "ops/optimizer/kernels.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace norma::nn {

namespace {

/// Averages that are undefined begin at 0.
void begin_averages(Tensors& averages, const Tensor& parameter) {
  for (Tensor& average : averages) {
    if (!average.defined()) {
      average = zeros_like(parameter);
    }
  }
}

/// The Step of each group, which consists of doubles, as plain numbers.
template <class StepOf>
std::vector<double> numbers_of(const std::vector<ParameterGroup>& groups, StepOf&& step_of) {
  std::vector<double> numbers;
  for (const ParameterGroup& group : groups) {
    const auto step = step_of(group);
    static_assert(sizeof(step) % sizeof(double) == 0);
    std::vector<double> of_group(sizeof(step) / sizeof(double));
    std::memcpy(of_group.data(), &step, sizeof(step));
    numbers.insert(numbers.end(), of_group.begin(), of_group.end());
  }
  return numbers;
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

kernels::SgdStep Sgd::step_of(const ParameterGroup& group, bool first) const {
  // The first velocity is the slope itself. Nesterov looks ahead along the velocity: its step is g + momentum · v.
  return {.rate = lr() * group.lr_scale,
          .weight_decay = group.weight_decay,
          .momentum = first ? 0 : options_.momentum,
          .share = first ? 1 : 1 - options_.dampening,
          .own = options_.nesterov ? 1.0 : 0.0,
          .along = options_.nesterov ? options_.momentum : 1};
}

std::vector<double> Sgd::numbers_of_next_step() const {
  return numbers_of(groups(), [&](const ParameterGroup& group) { return step_of(group, /* first= */ false); });
}

void Sgd::update(const std::vector<Update>& updates) {
  std::vector<SgdUpdate> steps;
  for (const Update& update : updates) {
    Tensor velocity = update.state->front();
    const bool first = !velocity.defined();
    if (options_.momentum != 0 && first) {
      velocity = zeros_like(update.parameter);
    }
    steps.push_back({.parameter = update.parameter,
                     .gradient = update.gradient,
                     .velocity = options_.momentum != 0 ? velocity : Tensor(),
                     .step = step_of(*update.group, first),
                     .changing = recorded_numbers<kernels::SgdStep>(*update.group)});
  }
  sgd_step(steps, guard());
  for (size_t i = 0; i < updates.size(); ++i) {  // only now, so that a step without memory can be taken once more
    if (steps[i].velocity.defined()) {
      updates[i].state->front() = steps[i].velocity;
    }
  }
}

AdamW::AdamW(std::vector<ParameterGroup> groups, const AdamWOptions& options)
    : Optimizer(std::move(groups), options.lr), options_(options) {
  check(options.beta1 >= 0 && options.beta1 < 1 && options.beta2 >= 0 && options.beta2 < 1, "adamw",
        "beta1, beta2: expected values in [0, 1), got {}, {}", options.beta1, options.beta2);
  check_not_negative("adamw", "eps", options.eps);
}

kernels::AdamWStep AdamW::step_of(const ParameterGroup& group, int64_t step) const {
  const double correction1 = 1 - std::pow(options_.beta1, static_cast<double>(step));
  const double correction2 = 1 - std::pow(options_.beta2, static_cast<double>(step));
  const double rate = lr() * group.lr_scale;
  return {.beta1 = options_.beta1,
          .beta2 = options_.beta2,
          .eps = options_.eps,
          .shrink = 1 - rate * group.weight_decay,
          .step_size = rate / correction1,
          .scale = 1 / std::sqrt(correction2)};
}

std::vector<double> AdamW::numbers_of_next_step() const {
  return numbers_of(groups(), [&](const ParameterGroup& group) { return step_of(group, steps() + 1); });
}

void AdamW::update(const std::vector<Update>& updates) {
  std::vector<AdamWUpdate> steps;
  for (const Update& update : updates) {
    begin_averages(*update.state, update.parameter);
    steps.push_back({.parameter = update.parameter,
                     .gradient = update.gradient,
                     .average = update.state->front(),
                     .square_average = update.state->back(),
                     .step = step_of(*update.group, this->steps()),
                     .changing = recorded_numbers<kernels::AdamWStep>(*update.group)});
  }
  adamw_step(steps, guard());
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

kernels::LambStep Lamb::step_of(const ParameterGroup& group, int64_t step) const {
  return {.beta1 = options_.beta1,
          .beta2 = options_.beta2,
          .eps = options_.eps,
          .correction1 = 1 - std::pow(options_.beta1, static_cast<double>(step)),
          .correction2 = std::sqrt(1 - std::pow(options_.beta2, static_cast<double>(step))),
          .weight_decay = group.weight_decay,
          .rate = lr() * group.lr_scale};
}

std::vector<double> Lamb::numbers_of_next_step() const {
  return numbers_of(groups(), [&](const ParameterGroup& group) { return step_of(group, steps() + 1); });
}

void Lamb::update(const std::vector<Update>& updates) {
  std::vector<LambUpdate> steps;
  for (const Update& update : updates) {
    begin_averages(*update.state, update.parameter);
    steps.push_back({.parameter = update.parameter,
                     .gradient = update.gradient,
                     .average = update.state->front(),
                     .square_average = update.state->back(),
                     .step = step_of(*update.group, this->steps()),
                     .changing = recorded_numbers<kernels::LambStep>(*update.group)});
  }
  lamb_step(steps, divisor_, guard());
}

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

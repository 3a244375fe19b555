#include "nn/optim/optimizers.h"

#include "core/factory.h"
#include "nn/optim/clip.h"
#include "nn/optim/optimizer.h"
#include "ops/matmul/matmul.h"
#include "ops/optimizer/kernels.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

namespace norma::nn {

namespace {

/// The place of an update's numbers in a recorded step, which set_numbers() writes; null in any other step.
template <class Step, class Update>
const Step* changing_of(const Update& update) {
  return static_cast<const Step*>(static_cast<const void*>(update.changing));
}

/// An update of AdamW's kind. `averages`: of the gradient and of its square; those that are undefined begin at 0.
template <class Update, class Step>
StepUpdate<Step> step_update(const Update& update, std::span<Tensor> averages, const Step& step) {
  for (Tensor& average : averages) {
    if (!average.defined()) {
      average = zeros_like(update.parameter);
    }
  }
  return {.parameter = update.parameter,
          .gradient = update.gradient,
          .average = averages.front(),
          .square_average = averages.back(),
          .step = step,
          .changing = changing_of<Step>(update)};
}

void check_betas(std::string_view op, double beta1, double beta2) {
  check(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1, op, "beta1, beta2: expected values in [0, 1), got {}, {}",
        beta1, beta2);
}

/// A Step, which consists of doubles, as plain numbers.
template <class Step>
std::vector<double> as_doubles(const Step& step) {
  static_assert(sizeof(Step) % sizeof(double) == 0);
  std::vector<double> numbers(sizeof(Step) / sizeof(double));
  std::memcpy(numbers.data(), &step, sizeof(Step));
  return numbers;
}

/// The numbers of AdamW's update number `number`, from 1.
kernels::AdamWStep adamw_numbers(double beta1, double beta2, double eps, double rate, double weight_decay,
                                 int64_t number) {
  const double correction1 = 1 - std::pow(beta1, static_cast<double>(number));
  const double correction2 = 1 - std::pow(beta2, static_cast<double>(number));
  return {.beta1 = beta1,
          .beta2 = beta2,
          .eps = eps,
          .shrink = 1 - rate * weight_decay,
          .step_size = rate / correction1,
          .scale = 1 / std::sqrt(correction2)};
}

/// x as (size(0), the rest) in its memory, if its first axis is the outermost there; else a copy. The order of the
/// columns does not matter to an orthogonal matrix that is written back to the same places.
Tensor as_rows(const Tensor& x) {
  const int64_t rows = x.size(0);
  const int64_t columns = x.numel() / rows;
  const bool outermost = is_non_overlapping_and_dense(x) && (rows == 1 || x.strides()[0] == columns);
  return outermost ? alias(x, {rows, columns}, {columns, 1}, x.offset()) : reshape(contiguous(x), {rows, columns});
}

}  // namespace

Sgd::Sgd(std::vector<ParameterGroup> groups, const SgdOptions& options)
    : Optimizer(std::move(groups), options.lr, options.momentum), options_(options) {
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
          .momentum = first ? 0 : momentum(),
          .share = first ? 1 : 1 - options_.dampening,
          .own = options_.nesterov ? 1.0 : 0.0,
          .along = options_.nesterov ? momentum() : 1};
}

std::vector<double> Sgd::numbers_of(const ParameterGroup& group, int64_t /*number*/) const {
  return as_doubles(step_of(group, /* first= */ false));
}

void Sgd::update(const std::vector<Update>& updates) {
  std::vector<SgdUpdate> steps;
  for (const Update& update : updates) {
    Tensor velocity = update.state->front();
    const bool first = !velocity.defined();
    if (momentum() != 0 && first) {
      velocity = zeros_like(update.parameter);
    }
    steps.push_back({.parameter = update.parameter,
                     .gradient = update.gradient,
                     .average = momentum() != 0 ? velocity : Tensor(),
                     .step = step_of(*update.group, first),
                     .changing = changing_of<kernels::SgdStep>(update)});
  }
  sgd_step(steps, guard());
  for (size_t i = 0; i < updates.size(); ++i) {  // only now, so that a step without memory can be taken once more
    if (steps[i].average.defined()) {
      updates[i].state->front() = steps[i].average;
    }
  }
}

AdamW::AdamW(std::vector<ParameterGroup> groups, const AdamWOptions& options)
    : Optimizer(std::move(groups), options.lr, options.beta1), options_(options) {
  check_betas("adamw", options.beta1, options.beta2);
  check_not_negative("adamw", "eps", options.eps);
}

kernels::AdamWStep AdamW::step_of(const ParameterGroup& group, int64_t number) const {
  return adamw_numbers(momentum(), options_.beta2, options_.eps, lr() * group.lr_scale, group.weight_decay, number);
}

std::vector<double> AdamW::numbers_of(const ParameterGroup& group, int64_t number) const {
  return as_doubles(step_of(group, number));
}

void AdamW::update(const std::vector<Update>& updates) {
  std::vector<AdamWUpdate> steps;
  for (const Update& update : updates) {
    steps.push_back(step_update(update, *update.state, step_of(*update.group, update.number)));
  }
  adamw_step(steps, guard());
}

Lamb::Lamb(std::vector<ParameterGroup> groups, const LambOptions& options)
    : Optimizer(std::move(groups), options.lr, options.beta1), options_(options) {
  check_betas("lamb", options.beta1, options.beta2);
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
  return {.beta1 = momentum(),
          .beta2 = options_.beta2,
          .eps = options_.eps,
          .correction1 = 1 - std::pow(momentum(), static_cast<double>(step)),
          .correction2 = std::sqrt(1 - std::pow(options_.beta2, static_cast<double>(step))),
          .weight_decay = group.weight_decay,
          .rate = lr() * group.lr_scale};
}

std::vector<double> Lamb::numbers_of(const ParameterGroup& group, int64_t /*number*/) const {
  return as_doubles(step_of(group, steps() + 1));
}

void Lamb::update(const std::vector<Update>& updates) {
  std::vector<LambUpdate> steps;
  for (const Update& update : updates) {
    steps.push_back(step_update(update, *update.state, step_of(*update.group, this->steps())));
  }
  lamb_step(steps, divisor_, guard());
}

RmsPropTf::RmsPropTf(std::vector<ParameterGroup> groups, const RmsPropTfOptions& options)
    : Optimizer(std::move(groups), options.lr, options.momentum), options_(options) {
  check(options.alpha >= 0 && options.alpha <= 1, "rmsprop_tf", "alpha: expected a value in [0, 1], got {}",
        options.alpha);
  check_not_negative("rmsprop_tf", "eps", options.eps);
  check_not_negative("rmsprop_tf", "momentum", options.momentum);
}

void RmsPropTf::update(const std::vector<Update>& updates) {
  for (const auto& [parameter, gradient, state, group, number, changing] : updates) {
    Tensor p = parameter;
    Tensor& squares = state->front();
    Tensor& velocity = state->back();
    if (!squares.defined()) {
      squares = ones_like(parameter);
    }
    const Tensor slope = group->weight_decay == 0 ? gradient : add(gradient, mul(parameter, group->weight_decay));
    add_(squares, mul(sub(mul(slope, slope), squares), 1 - options_.alpha));
    Tensor step = mul(div(slope, sqrt(add(squares, options_.eps))), lr() * group->lr_scale);
    if (momentum() > 0) {
      velocity = velocity.defined() ? add(mul(velocity, momentum()), step) : step;
      step = velocity;
    }
    sub_(p, step);
  }
}

Muon::Muon(std::vector<ParameterGroup> groups, const MuonOptions& options)
    : Optimizer(std::move(groups), options.lr, options.momentum), options_(options) {
  check(options.momentum >= 0 && options.momentum <= 1, "muon", "momentum: expected a value in [0, 1], got {}",
        options.momentum);
  check(options.newton_schulz_steps >= 1, "muon", "newton_schulz_steps: expected at least 1, got {}",
        options.newton_schulz_steps);
  check_betas("muon", options.beta1, options.beta2);
  check_not_negative("muon", "eps", options.eps);
}

bool Muon::orthogonalizes(const Sizes& sizes) {
  if (sizes.size() < 2 || sizes[0] <= 1 || sizes[1] <= 1) {
    return false;
  }
  const int64_t columns = sizes.numel() / sizes[0];
  const auto [fewer, more] = std::minmax({sizes[0], columns});
  return fewer >= 4 && more <= 128 * fewer;
}

Tensor newton_schulz(const Tensor& x, int64_t steps) {
  check(x.rank() == 2 && steps >= 1, "newton_schulz", "x, steps: expected rank 2 and at least 1, got {}, {}", x.rank(),
        steps);
  // Coefficients that were searched for fast growth of small singular values, as in timm ("quintic"); the last repeats.
  constexpr double kCoefficients[][3] = {{4.0848, -6.8946, 2.9270},
                                         {3.9505, -6.3029, 2.6377},
                                         {3.7418, -5.5913, 2.3037},
                                         {2.8769, -3.1427, 1.2046},
                                         {2.8366, -3.0525, 1.2012}};
  const bool is_tall = x.size(0) > x.size(1);
  Tensor y = is_tall ? transpose(x, 0, 1) : x;
  y = scaled_by_largest(y).quotient;
  y = div(y, clamp(sqrt(sum(mul(y, y))), 1, std::numeric_limits<double>::infinity()));  // 0 stays 0
  for (int64_t step = 0; step < steps; ++step) {
    const auto& [a, b, c] = kCoefficients[std::min<int64_t>(step, std::size(kCoefficients) - 1)];
    const Tensor squares = matmul(y, transpose(y, 0, 1));
    const Tensor polynomial = add(mul(squares, b), mul(matmul(squares, squares), c));
    y = add(mul(y, a), matmul(polynomial, y));
  }
  return is_tall ? transpose(y, 0, 1) : y;
}

void Muon::update_matrix(const Update& update) const {
  Tensor p = update.parameter;
  const double rate = lr() * update.group->lr_scale;
  Tensor velocity = mul(update.gradient, 1 - momentum());
  if (update.state->front().defined()) {
    add_(velocity, mul(update.state->front(), momentum()));
  }
  const Tensor rows = as_rows(velocity);
  const double length = 0.2 * std::sqrt(static_cast<double>(std::max(rows.size(0), rows.size(1))));
  const Tensor step = mul(newton_schulz(rows, options_.newton_schulz_steps), rate * length);
  mul_(p, 1 - rate * update.group->weight_decay);
  if (rows.storage() == velocity.storage()) {
    Tensor values = as_rows(p);  // lies as its velocity does
    sub_(values, step);
  } else {
    sub_(p, reshape(step, p.sizes()));
  }
  update.state->front() = velocity;  // only now, so that a step without memory can be taken once more
}

void Muon::update(const std::vector<Update>& updates) {
  std::vector<AdamWUpdate> others;
  for (const Update& update : updates) {
    if (orthogonalizes(update.parameter.sizes())) {
      update_matrix(update);
      continue;
    }
    const double rate = lr() * update.group->lr_scale;
    others.push_back(step_update(
        update, std::span(*update.state).subspan(1),
        adamw_numbers(options_.beta1, options_.beta2, options_.eps, rate, update.group->weight_decay, update.number)));
  }
  if (!others.empty()) {
    adamw_step(others, guard());
  }
}

}  // namespace norma::nn

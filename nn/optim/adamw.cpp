#include "nn/optim/adamw.h"

#include "core/factory.h"
#include "core/op_profile.h"
#include "core/parallel.h"

#include <cmath>
#include <utility>

namespace norma::nn {

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
  const OpScope scope(
      [&] { return OpWork{.op = "adamw", .bytes = 2 * bytes_of(parameter, state[0], state[1]) + bytes_of(gradient)}; });
  dispatch_floating("adamw", parameter.dtype(), [&]<class T>(T) {
    T* p = parameter.data<T>();
    const T* g = gradient.data<T>();
    T* m = state[0].data<T>();
    T* v = state[1].data<T>();
    const auto shrink = static_cast<T>(1 - rate * group.weight_decay);
    const auto beta1 = static_cast<T>(options_.beta1);
    const auto rest1 = static_cast<T>(1 - options_.beta1);
    const auto beta2 = static_cast<T>(options_.beta2);
    const auto rest2 = static_cast<T>(1 - options_.beta2);
    const auto step_size = static_cast<T>(rate / correction1);
    const auto scale2 = static_cast<T>(1 / std::sqrt(correction2));
    const auto eps = static_cast<T>(options_.eps);
    parallel_for(0, parameter.numel(), kPointwiseGrain, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        m[i] = beta1 * m[i] + rest1 * g[i];
        v[i] = beta2 * v[i] + rest2 * g[i] * g[i];
        p[i] = shrink * p[i] - step_size * m[i] / (std::sqrt(v[i]) * scale2 + eps);
      }
    });
  });
}

}  // namespace norma::nn

#include "nn/optim/sgd.h"

#include "core/factory.h"
#include "core/op_profile.h"
#include "core/parallel.h"

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
  const bool has_velocity = options_.momentum != 0;
  const bool first = !state[0].defined();
  if (has_velocity && first) {
    state[0] = zeros_like(parameter);
  }
  const OpScope scope([&] {  // parameter and velocity are read and written
    return OpWork{.op = "sgd", .bytes = 2 * bytes_of(parameter, state[0]) + bytes_of(gradient)};
  });
  dispatch_floating("sgd", parameter.dtype(), [&]<class T>(T) {
    T* p = parameter.data<T>();
    const T* g = gradient.data<T>();
    T* v = has_velocity ? state[0].data<T>() : nullptr;
    const auto rate = static_cast<T>(lr() * group.lr_scale);
    const auto decay = static_cast<T>(group.weight_decay);
    const auto momentum = static_cast<T>(first ? 0 : options_.momentum);
    const auto keep = static_cast<T>(first ? 1 : 1 - options_.dampening);
    // Nesterov looks ahead along the velocity: its step is g + momentum · v.
    const auto own = static_cast<T>(options_.nesterov ? 1 : 0);
    const auto along = static_cast<T>(options_.nesterov ? options_.momentum : 1);
    parallel_for(0, parameter.numel(), kPointwiseGrain, [&](int64_t begin, int64_t end) {
      if (v == nullptr) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) {
          p[i] -= rate * (g[i] + decay * p[i]);
        }
        return;
      }
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        const T slope = g[i] + decay * p[i];
        v[i] = momentum * v[i] + keep * slope;
        p[i] -= rate * (own * slope + along * v[i]);
      }
    });
  });
}

}  // namespace norma::nn

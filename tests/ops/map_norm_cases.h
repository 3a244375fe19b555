#pragma once

#include "core/factory.h"
#include "ops/map_norm/norms.h"

#include <functional>
#include <string>
#include <vector>

namespace norma::test {

/// A norm of ops/map_norm/, for inputs on any device.
struct MapNormCase {
  std::string name;
  std::function<Tensor(const Tensors& inputs, Activation activation)> run;  ///< x, then parameters of (C)
  int64_t parameters;
};

/// The last two are local response norms.
inline std::vector<MapNormCase> map_norm_cases() {
  const auto b0 = [](bool training) {
    return [training](const Tensors& in, Activation activation) {
      const TensorOptions options{.dtype = in[1].dtype(), .device = in[0].device()};
      const Tensor running = training ? Tensor{} : full({in[0].size(1)}, 0.7, options);
      return evo_norm_b0(in[0], running, in[1], in[2], in[3], {.training = training, .activation = activation});
    };
  };
  return {{"evo_norm_b0", b0(true), 3},
          {"evo_norm_b0 in evaluation", b0(false), 3},
          {"evo_norm_s0",
           [](const Tensors& in, Activation activation) {
             return evo_norm_s0(in[0], in[0].size(1) % 5 == 0 ? 5 : 1, in[1], in[2], in[3], {.activation = activation});
           },
           3},
          {"filter_response_norm",
           [](const Tensors& in, Activation activation) {
             return filter_response_norm(in[0], in[1], in[2], in[3], {.activation = activation});
           },
           3},
          {"global_response_norm",
           [](const Tensors& in, Activation activation) {
             return global_response_norm(in[0], in[1], in[2], {.activation = activation});
           },
           2},
          {"dynamic_tanh",
           [](const Tensors& in, Activation activation) {
             const Tensor alpha = full({1}, 0.7, {.dtype = in[1].dtype(), .device = in[0].device()});
             return dynamic_tanh(in[0], alpha, in[1], in[2], {.activation = activation});
           },
           2},
          {"local_response_norm",
           [](const Tensors& in, Activation activation) {
             return local_response_norm(in[0], 5, {.alpha = 0.5, .k = 0.5, .activation = activation});
           },
           0},
          {"local_response_norm with another power",
           [](const Tensors& in, Activation activation) {
             return local_response_norm(in[0], 4, {.alpha = 0.5, .beta = 0.6, .activation = activation});
           },
           0}};
}

}  // namespace norma::test

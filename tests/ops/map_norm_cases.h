#pragma once

#include "composed_definitions.h"
#include "core/factory.h"
#include "ops/map_norm/norms.h"
#include "seed_norm_definition.h"

#include <functional>
#include <string>
#include <vector>

namespace norma::test {

struct MapNormOptions {
  Activation activation = Activation::identity;
  double eps = 1e-4;
};

/// A norm of ops/map_norm/, for inputs on any device, and its formula.
struct MapNormCase {
  std::string name;
  /// The names of the inputs behind x. Each has a number for each channel; alpha and shift have one.
  std::vector<std::string> parameters;
  std::function<Tensor(const Tensors& inputs, const MapNormOptions& options)> run;
  /// "y", "dx" and "d" + the name of a parameter.
  std::function<NormValues(const Tensors& inputs, const Tensor& dy, double eps)> define;
};

inline constexpr double kRunningVar = 0.75;  ///< of evo_norm_b0 in evaluation; all dtypes hold it

/// A number of groups that divides the channels: 5, 3, 2 or 1.
inline int64_t groups_for(int64_t channels) {
  return channels % 5 == 0 ? 5 : channels % 3 == 0 ? 3 : channels % 2 == 0 ? 2 : 1;
}

inline MapNormCase evo_norm_b0_case(bool training) {
  const auto run = [training](const Tensors& in, const MapNormOptions& options) {
    const TensorOptions of_running{.dtype = in[1].dtype(), .device = in[0].device()};
    const Tensor running = training ? Tensor{} : full({in[0].size(1)}, kRunningVar, of_running);
    return evo_norm_b0(in[0], running, in[1], in[2], in[3],
                       {.training = training, .eps = options.eps, .activation = options.activation});
  };
  const auto define = [training](const Tensors& in, const Tensor& dy, double eps) {
    const ComposedInputs inputs(in[0], dy, in[2], in[3]);
    const std::vector<double> running(training ? 0 : inputs.channels, kRunningVar);
    BranchEdge edge;
    return evonorm_b0_definition(inputs, in[1].to_vector<double>(), eps, running, training, 0, edge);
  };
  return {training ? "evo_norm_b0" : "evo_norm_b0 in evaluation", {"v", "weight", "bias"}, run, define};
}

inline MapNormCase local_response_norm_case(std::string name, int64_t window, const LocalResponseNormOptions& with) {
  const auto run = [window, with](const Tensors& in, const MapNormOptions& options) {
    LocalResponseNormOptions all = with;
    all.activation = options.activation;
    return local_response_norm(in[0], window, all);
  };
  const auto define = [window, with](const Tensors& in, const Tensor& dy, double) {
    return local_response_definition(ComposedInputs(in[0], dy, {}, {}), window, with.alpha, with.beta, with.k);
  };
  return {std::move(name), {}, run, define};
}

/// Every norm with all of its parameters; the local response norms are the last two.
inline std::vector<MapNormCase> map_norm_cases() {
  const auto values = [](const Tensor& x) { return x.to_vector<double>(); };
  return {
      evo_norm_b0_case(true),
      evo_norm_b0_case(false),
      {"evo_norm_s0",
       {"v", "weight", "bias"},
       [](const Tensors& in, const MapNormOptions& options) {
         return evo_norm_s0(in[0], groups_for(in[0].size(1)), in[1], in[2], in[3],
                            {.eps = options.eps, .activation = options.activation});
       },
       [=](const Tensors& in, const Tensor& dy, double eps) {
         const auto groups = static_cast<size_t>(groups_for(in[0].size(1)));
         return evonorm_s0_definition(ComposedInputs(in[0], dy, in[2], in[3]), values(in[1]), groups, eps);
       }},
      {"filter_response_norm",
       {"weight", "bias", "tau"},
       [](const Tensors& in, const MapNormOptions& options) {
         return filter_response_norm(in[0], in[1], in[2], in[3],
                                     {.eps = options.eps, .activation = options.activation});
       },
       [=](const Tensors& in, const Tensor& dy, double eps) {
         BranchEdge edge;
         return frn_definition(ComposedInputs(in[0], dy, in[1], in[2]), values(in[3]), eps, edge);
       }},
      {"global_response_norm",
       {"weight", "bias"},
       [](const Tensors& in, const MapNormOptions& options) {
         return global_response_norm(in[0], in[1], in[2], {.eps = options.eps, .activation = options.activation});
       },
       [](const Tensors& in, const Tensor& dy, double eps) {
         return grn_definition(ComposedInputs(in[0], dy, in[1], in[2]), eps);
       }},
      {"dynamic_tanh",
       {"alpha", "weight", "bias"},
       [](const Tensors& in, const MapNormOptions& options) {
         return dynamic_tanh(in[0], in[1], in[2], in[3], {.activation = options.activation});
       },
       [=](const Tensors& in, const Tensor& dy, double) {
         return dyt_definition(ComposedInputs(in[0], dy, in[2], in[3]), values(in[1])[0]);
       }},
      {"dynamic_erf",
       {"alpha", "shift", "weight", "bias"},
       [](const Tensors& in, const MapNormOptions& options) {
         return dynamic_erf(in[0], in[1], in[2], in[3], in[4], {.activation = options.activation});
       },
       [=](const Tensors& in, const Tensor& dy, double) {
         return derf_definition(ComposedInputs(in[0], dy, in[3], in[4]), values(in[1])[0], values(in[2])[0]);
       }},
      {"seed_norm",
       {"weight", "alphas", "beta"},
       [](const Tensors& in, const MapNormOptions& options) {
         return seed_norm(in[0], in[1], in[2], in[3], {.eps = options.eps, .activation = options.activation});
       },
       [=](const Tensors& in, const Tensor& dy, double eps) {
         return seed_norm_definition(ComposedInputs(in[0], dy, in[1], {}), values(in[2]), values(in[3]), eps);
       }},
      local_response_norm_case("local_response_norm", 5, {.alpha = 0.5, .k = 0.5}),
      local_response_norm_case("local_response_norm with another power", 4, {.alpha = 0.5, .beta = 0.6}),
  };
}

/// Every norm, and those that can do without parameters once more without them.
inline std::vector<MapNormCase> all_map_norm_cases() {
  const auto values = [](const Tensor& x) { return x.to_vector<double>(); };
  std::vector<MapNormCase> all = map_norm_cases();
  const MapNormCase bare[] = {
      {"evo_norm_s0 without weight and bias",
       {"v"},
       [](const Tensors& in, const MapNormOptions& options) {
         return evo_norm_s0(in[0], 1, in[1], {}, {}, {.eps = options.eps, .activation = options.activation});
       },
       [=](const Tensors& in, const Tensor& dy, double eps) {
         return evonorm_s0_definition(ComposedInputs(in[0], dy, {}, {}), values(in[1]), 1, eps);
       }},
      {"filter_response_norm alone",
       {},
       [](const Tensors& in, const MapNormOptions& options) {
         return filter_response_norm(in[0], {}, {}, {}, {.eps = options.eps, .activation = options.activation});
       },
       [](const Tensors& in, const Tensor& dy, double eps) {
         BranchEdge edge;
         return frn_definition(ComposedInputs(in[0], dy, {}, {}), {}, eps, edge);
       }},
      {"global_response_norm alone",
       {},
       [](const Tensors& in, const MapNormOptions& options) {
         return global_response_norm(in[0], {}, {}, {.eps = options.eps, .activation = options.activation});
       },
       [](const Tensors& in, const Tensor& dy, double eps) {
         return grn_definition(ComposedInputs(in[0], dy, {}, {}), eps);
       }},
      {"dynamic_tanh alone",
       {"alpha"},
       [](const Tensors& in, const MapNormOptions& options) {
         return dynamic_tanh(in[0], in[1], {}, {}, {.activation = options.activation});
       },
       [=](const Tensors& in, const Tensor& dy, double) {
         return dyt_definition(ComposedInputs(in[0], dy, {}, {}), values(in[1])[0]);
       }},
      {"dynamic_erf alone",
       {"alpha", "shift"},
       [](const Tensors& in, const MapNormOptions& options) {
         return dynamic_erf(in[0], in[1], in[2], {}, {}, {.activation = options.activation});
       },
       [=](const Tensors& in, const Tensor& dy, double) {
         return derf_definition(ComposedInputs(in[0], dy, {}, {}), values(in[1])[0], values(in[2])[0]);
       }}};
  all.insert(all.end(), std::begin(bare), std::end(bare));
  return all;
}

/// Parameters for some channels.
inline Tensors map_norm_parameters(const MapNormCase& norm, int64_t channels) {
  Tensors parameters;
  for (const std::string& name : norm.parameters) {
    const uint64_t seed = 2 + parameters.size();
    parameters.push_back(name == "alpha"   ? full({1}, 0.7, {.dtype = DType::float64})
                         : name == "shift" ? full({1}, -0.3, {.dtype = DType::float64})
                                           : random_tensor({channels}, seed));
  }
  return parameters;
}

}  // namespace norma::test

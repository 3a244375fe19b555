#pragma once

#include "core/factory.h"
#include "formula_values.h"
#include "ops/map_norm/norms.h"

#include <algorithm>
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
  std::function<formula::Formula(int64_t channels)> formula;

  /// "y", "dx" and "d" + the name of a parameter.
  [[nodiscard]] NormValues define(const Tensors& inputs, const Tensor& dy, double eps) const {
    NamedParameters named;
    for (size_t i = 0; i < parameters.size(); ++i) {
      named.emplace_back(parameters[i] == "alphas" ? "alpha" : parameters[i], inputs[i + 1]);
    }
    NormValues values = values_of(formula(inputs[0].size(1)), inputs[0], dy, named, eps);
    if (std::ranges::count(parameters, "alphas") > 0) {
      values["dalphas"] = values["dalpha"];
    }
    return values;
  }
};

inline constexpr double kRunningVar = 0.75;  ///< of evo_norm_b0 in evaluation; all dtypes hold it

/// A number of groups that divides the channels: 5, 3, 2 or 1.
inline int64_t groups_for(int64_t channels) {
  return channels % 5 == 0 ? 5 : channels % 3 == 0 ? 3 : channels % 2 == 0 ? 2 : 1;
}

/// The same formula for any number of channels.
inline std::function<formula::Formula(int64_t)> always(const formula::Formula& one) {
  return [one](int64_t) { return one; };
}

inline MapNormCase evo_norm_b0_case(bool training) {
  const auto run = [training](const Tensors& in, const MapNormOptions& options) {
    const TensorOptions of_running{.dtype = in[1].dtype(), .device = in[0].device()};
    const Tensor running = training ? Tensor{} : full({in[0].size(1)}, kRunningVar, of_running);
    return evo_norm_b0(in[0], running, in[1], in[2], in[3],
                       {.training = training, .eps = options.eps, .activation = options.activation});
  };
  const auto formula = [training](int64_t channels) {
    return formula::evo_norm_b0(std::vector<double>(training ? 0 : static_cast<size_t>(channels), kRunningVar));
  };
  return {training ? "evo_norm_b0" : "evo_norm_b0 in evaluation", {"v", "weight", "bias"}, run, formula};
}

inline MapNormCase local_response_norm_case(std::string name, int64_t window, const LocalResponseNormOptions& with) {
  const auto run = [window, with](const Tensors& in, const MapNormOptions& options) {
    LocalResponseNormOptions all = with;
    all.activation = options.activation;
    return local_response_norm(in[0], window, all);
  };
  return {std::move(name), {}, run, always(formula::local_response_norm(window, with))};
}

/// Every norm with all of its parameters; the local response norms are the last two.
inline std::vector<MapNormCase> map_norm_cases() {
  return {
      evo_norm_b0_case(true),
      evo_norm_b0_case(false),
      {"evo_norm_s0",
       {"v", "weight", "bias"},
       [](const Tensors& in, const MapNormOptions& options) {
         return evo_norm_s0(in[0], groups_for(in[0].size(1)), in[1], in[2], in[3],
                            {.eps = options.eps, .activation = options.activation});
       },
       [](int64_t channels) { return formula::evo_norm_s0(groups_for(channels)); }},
      {"filter_response_norm",
       {"weight", "bias", "tau"},
       [](const Tensors& in, const MapNormOptions& options) {
         return filter_response_norm(in[0], in[1], in[2], in[3],
                                     {.eps = options.eps, .activation = options.activation});
       },
       always(formula::filter_response_norm())},
      {"global_response_norm",
       {"weight", "bias"},
       [](const Tensors& in, const MapNormOptions& options) {
         return global_response_norm(in[0], in[1], in[2], {.eps = options.eps, .activation = options.activation});
       },
       always(formula::global_response_norm())},
      {"dynamic_tanh",
       {"alpha", "weight", "bias"},
       [](const Tensors& in, const MapNormOptions& options) {
         return dynamic_tanh(in[0], in[1], in[2], in[3], {.activation = options.activation});
       },
       always(formula::dynamic_tanh())},
      {"dynamic_erf",
       {"alpha", "shift", "weight", "bias"},
       [](const Tensors& in, const MapNormOptions& options) {
         return dynamic_erf(in[0], in[1], in[2], in[3], in[4], {.activation = options.activation});
       },
       always(formula::dynamic_erf())},
      {"seed_norm",
       {"weight", "alphas", "beta"},
       [](const Tensors& in, const MapNormOptions& options) {
         return seed_norm(in[0], in[1], in[2], in[3], {.eps = options.eps, .activation = options.activation});
       },
       always(formula::seed_norm())},
      local_response_norm_case("local_response_norm", 5, {.alpha = 0.5, .k = 0.5}),
      local_response_norm_case("local_response_norm with another power", 4, {.alpha = 0.5, .beta = 0.6}),
  };
}

/// Every norm, and those that can do without parameters once more without them.
inline std::vector<MapNormCase> all_map_norm_cases() {
  std::vector<MapNormCase> all = map_norm_cases();
  const MapNormCase bare[] = {
      {"evo_norm_s0 without weight and bias",
       {"v"},
       [](const Tensors& in, const MapNormOptions& options) {
         return evo_norm_s0(in[0], 1, in[1], {}, {}, {.eps = options.eps, .activation = options.activation});
       },
       always(formula::evo_norm_s0(1))},
      {"filter_response_norm alone",
       {},
       [](const Tensors& in, const MapNormOptions& options) {
         return filter_response_norm(in[0], {}, {}, {}, {.eps = options.eps, .activation = options.activation});
       },
       always(formula::filter_response_norm())},
      {"global_response_norm alone",
       {},
       [](const Tensors& in, const MapNormOptions& options) {
         return global_response_norm(in[0], {}, {}, {.eps = options.eps, .activation = options.activation});
       },
       always(formula::global_response_norm())},
      {"dynamic_tanh alone",
       {"alpha"},
       [](const Tensors& in, const MapNormOptions& options) {
         return dynamic_tanh(in[0], in[1], {}, {}, {.activation = options.activation});
       },
       always(formula::dynamic_tanh())},
      {"dynamic_erf alone",
       {"alpha", "shift"},
       [](const Tensors& in, const MapNormOptions& options) {
         return dynamic_erf(in[0], in[1], in[2], {}, {}, {.activation = options.activation});
       },
       always(formula::dynamic_erf())}};
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

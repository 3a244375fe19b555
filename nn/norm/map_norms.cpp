#include "nn/norm/map_norms.h"

#include "core/factory.h"
#include "nn/norm/options.h"

#include <cmath>

namespace norma::nn {

namespace {

/// The only element of a parameter.
double first_of(const Tensor& x) {
  return x.to_vector<double>().front();
}

/// ", axis=-1", or "" for the usual one.
std::string axis_text(int64_t axis) {
  return axis == 1 ? "" : fmt::format(", axis={}", axis);
}

}  // namespace

MapNorm::MapNorm(std::string_view layer, int64_t channels, const std::string& numbers, int64_t least)
    : name_(fmt::format("{}({})", layer, numbers)), channels_(channels) {
  check(channels >= least, layer, "channels: expected a positive number{}, got {}", least == 0 ? " or 0" : "",
        channels);
}

Tensor MapNorm::forward_act(const Tensor& x, const ActOptions& then) {
  return then.residual.defined() ? activate(apply_(x, Activation::identity), then) : apply_(x, then.activation);
}

LocalResponseNorm::LocalResponseNorm(int64_t size, const LocalResponseNormOptions& options, int64_t channels)
    : MapNorm("LocalResponseNorm", channels,
              fmt::format("{}, alpha={}, beta={}, k={}", size, options.alpha, options.beta, options.k),
              /* least= */ 0) {
  check(size >= 1, "LocalResponseNorm", "size: expected a positive number, got {}", size);
  apply_ = [=](const Tensor& x, Activation activation) {
    if (channels > 0) {
      check_norm_input("local_response_norm", x, channels, 3, kMaxRank);
    }
    return local_response_norm(
        x, size, {.alpha = options.alpha, .beta = options.beta, .k = options.k, .activation = activation});
  };
}

EvoNorm2dB0::EvoNorm2dB0(int64_t channels, const EvoNormB0LayerOptions& options)
    : MapNorm("EvoNorm2dB0", channels,
              fmt::format("{}, eps={}, momentum={}{}", channels, options.eps, options.momentum,
                          norm_option_text(/* affine= */ true, options.statistics))) {
  check_eps("EvoNorm2dB0", options.eps);
  check_momentum("EvoNorm2dB0", options.momentum);
  const Tensor weight = register_parameter("weight", ones({channels}));
  const Tensor bias = register_parameter("bias", zeros({channels}));
  const Tensor v = register_parameter("v", ones({channels}));
  const Tensor running_var = register_buffer("running_var", ones({channels}));
  apply_ = [=, this](const Tensor& x, Activation activation) {
    check_norm_input("evo_norm_b0", x, channels, 4, 4);
    return evo_norm_b0(x, running_var, v, weight, bias,
                       {.training = is_training(),
                        .momentum = options.momentum,
                        .eps = options.eps,
                        .statistics = options.statistics,
                        .activation = activation});
  };
}

EvoNorm2dS0::EvoNorm2dS0(int64_t groups, int64_t channels, const EvoNormS0Options& options)
    : MapNorm("EvoNorm2dS0", channels,
              fmt::format("{}, {}, eps={}{}", groups, channels, options.eps,
                          norm_option_text(/* affine= */ true, options.statistics))) {
  check_eps("EvoNorm2dS0", options.eps);
  check(groups > 0 && channels % groups == 0, "evo_norm_s0",
        "num_channels must be divisible by num_groups, got num_channels {}, num_groups {}", channels, groups);
  const Tensor weight = register_parameter("weight", ones({channels}));
  const Tensor bias = register_parameter("bias", zeros({channels}));
  const Tensor v = register_parameter("v", ones({channels}));
  apply_ = [=](const Tensor& x, Activation activation) {
    check_norm_input("evo_norm_s0", x, channels, 4, 4);
    return evo_norm_s0(x, groups, v, weight, bias,
                       {.eps = options.eps, .statistics = options.statistics, .activation = activation});
  };
}

FilterResponseNormTlu2d::FilterResponseNormTlu2d(int64_t channels, const FilterResponseNormOptions& options)
    : MapNorm("FilterResponseNormTlu2d", channels, fmt::format("{}, eps={}", channels, options.eps)) {
  check_eps("FilterResponseNormTlu2d", options.eps);
  const Tensor weight = register_parameter("weight", ones({channels}));
  const Tensor bias = register_parameter("bias", zeros({channels}));
  const Tensor tau = register_parameter("tau", zeros({channels}));
  apply_ = [=](const Tensor& x, Activation activation) {
    check_norm_input("filter_response_norm", x, channels, 4, 4);
    return filter_response_norm(x, weight, bias, tau, {.eps = options.eps, .activation = activation});
  };
}

GlobalResponseNorm::GlobalResponseNorm(int64_t channels, const GlobalResponseNormOptions& options)
    : MapNorm("GlobalResponseNorm", channels, fmt::format("{}, eps={}", channels, options.eps)) {
  check_eps("GlobalResponseNorm", options.eps);
  const Tensor weight = register_parameter("weight", zeros({channels}));
  const Tensor bias = register_parameter("bias", zeros({channels}));
  apply_ = [=](const Tensor& x, Activation activation) {
    check_norm_input("global_response_norm", x, channels, 3, 5);
    return global_response_norm(x, weight, bias, {.eps = options.eps, .activation = activation});
  };
}

DynamicTanh::DynamicTanh(int64_t channels, const DynamicTanhLayerOptions& options)
    : MapNorm("DynamicTanh", channels,
              fmt::format("{}, alpha={}{}", channels, options.alpha, axis_text(options.axis))) {
  const Tensor alpha = alpha_ = register_parameter("alpha", full({1}, options.alpha));
  const Tensor weight = register_parameter("weight", ones({channels}));
  const Tensor bias = register_parameter("bias", zeros({channels}));
  apply_ = [=](const Tensor& x, Activation activation) {
    if (options.axis == 1) {
      check_norm_input("dynamic_tanh", x, channels, 2, kMaxRank);
    }
    return dynamic_tanh(x, alpha, weight, bias, {.axis = options.axis, .activation = activation});
  };
}

std::optional<Bend> DynamicTanh::bend() const {
  // d tanh(u)/du = 1 / cosh²(u), which is a tenth at cosh(u) = √10.
  return Bend{.scale = first_of(alpha_), .shift = 0, .limit = std::acosh(std::sqrt(10.0))};
}

DynamicErf::DynamicErf(int64_t channels, const DynamicErfLayerOptions& options)
    : MapNorm(
          "DynamicErf", channels,
          fmt::format("{}, alpha={}, shift={}{}", channels, options.alpha, options.shift, axis_text(options.axis))) {
  const Tensor alpha = alpha_ = register_parameter("alpha", full({1}, options.alpha));
  const Tensor shift = shift_ = register_parameter("shift", full({1}, options.shift));
  const Tensor weight = register_parameter("weight", ones({channels}));
  const Tensor bias = register_parameter("bias", zeros({channels}));
  apply_ = [=](const Tensor& x, Activation activation) {
    if (options.axis == 1) {
      check_norm_input("dynamic_erf", x, channels, 2, kMaxRank);
    }
    return dynamic_erf(x, alpha, shift, weight, bias, {.axis = options.axis, .activation = activation});
  };
}

std::optional<Bend> DynamicErf::bend() const {
  // d erf(u)/du is in proportion to exp(-u²), which is a tenth at u² = log(10).
  return Bend{.scale = first_of(alpha_), .shift = first_of(shift_), .limit = std::sqrt(std::log(10.0))};
}

SeedNorm::SeedNorm(int64_t channels, const SeedNormLayerOptions& options)
    : MapNorm("SeedNorm", channels,
              fmt::format("{}, eps={}{}{}", channels, options.eps, axis_text(options.axis),
                          norm_option_text(/* affine= */ true, Statistics::stable, /* bias= */ true, options.offset))),
      offset_(options.offset) {
  check_eps("SeedNorm", options.eps);
  const Tensor weight = register_parameter("weight", full({channels}, options.offset ? 0 : 1));
  const Tensor alpha = register_parameter("alpha", ones({channels}));
  const Tensor beta = register_parameter("beta", zeros({channels}));
  apply_ = [=](const Tensor& x, Activation activation) {
    if (options.axis == 1) {
      check_norm_input("seed_norm", x, channels, 2, kMaxRank);
    }
    return seed_norm(x, gain_of(weight, options.offset), alpha, beta,
                     {.eps = options.eps, .axis = options.axis, .activation = activation});
  };
}

}  // namespace norma::nn

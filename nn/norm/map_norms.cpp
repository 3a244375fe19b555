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

}  // namespace

MapNorm::MapNorm(std::string_view layer, int64_t channels) : channels_(channels) {
  check(channels > 0, layer, "channels: expected a positive number, got {}", channels);
}

Tensor MapNorm::forward_act(const Tensor& x, const ActOptions& then) {
  return then.residual.defined() ? activate(apply(x, Activation::identity), then) : apply(x, then.activation);
}

LocalResponseNorm::LocalResponseNorm(int64_t size, const LocalResponseNormOptions& options, int64_t channels)
    : MapNorm(channels), size_(size), options_(options) {
  check(channels >= 0, "LocalResponseNorm", "channels: expected a positive number or 0, got {}", channels);
  check(size >= 1, "LocalResponseNorm", "size: expected a positive number, got {}", size);
}

Tensor LocalResponseNorm::apply(const Tensor& x, Activation activation) {
  if (channels() > 0) {
    check_norm_input("local_response_norm", x, channels(), 3, kMaxRank);
  }
  return local_response_norm(
      x, size_, {.alpha = options_.alpha, .beta = options_.beta, .k = options_.k, .activation = activation});
}

std::string LocalResponseNorm::name() const {
  return fmt::format("LocalResponseNorm({}, alpha={}, beta={}, k={})", size_, options_.alpha, options_.beta,
                     options_.k);
}

EvoNorm2dB0::EvoNorm2dB0(int64_t channels, const EvoNormB0LayerOptions& options)
    : MapNorm("EvoNorm2dB0", channels), options_(options) {
  check_eps("EvoNorm2dB0", options.eps);
  check_momentum("EvoNorm2dB0", options.momentum);
  weight_ = register_parameter("weight", ones({channels}));
  bias_ = register_parameter("bias", zeros({channels}));
  v_ = register_parameter("v", ones({channels}));
  running_var_ = register_buffer("running_var", ones({channels}));
}

Tensor EvoNorm2dB0::apply(const Tensor& x, Activation activation) {
  check_norm_input("evo_norm_b0", x, channels(), 4, 4);
  return evo_norm_b0(x, running_var_, v_, weight_, bias_,
                     {.training = is_training(),
                      .momentum = options_.momentum,
                      .eps = options_.eps,
                      .statistics = options_.statistics,
                      .activation = activation});
}

std::string EvoNorm2dB0::name() const {
  return fmt::format("EvoNorm2dB0({}, eps={}, momentum={}{})", channels(), options_.eps, options_.momentum,
                     norm_option_text(/* affine= */ true, options_.statistics));
}

EvoNorm2dS0::EvoNorm2dS0(int64_t groups, int64_t channels, const EvoNormS0Options& options)
    : MapNorm("EvoNorm2dS0", channels), groups_(groups), options_(options) {
  check_eps("EvoNorm2dS0", options.eps);
  check(groups > 0 && channels % groups == 0, "evo_norm_s0",
        "num_channels must be divisible by num_groups, got num_channels {}, num_groups {}", channels, groups);
  weight_ = register_parameter("weight", ones({channels}));
  bias_ = register_parameter("bias", zeros({channels}));
  v_ = register_parameter("v", ones({channels}));
}

Tensor EvoNorm2dS0::apply(const Tensor& x, Activation activation) {
  check_norm_input("evo_norm_s0", x, channels(), 4, 4);
  return evo_norm_s0(x, groups_, v_, weight_, bias_,
                     {.eps = options_.eps, .statistics = options_.statistics, .activation = activation});
}

std::string EvoNorm2dS0::name() const {
  return fmt::format("EvoNorm2dS0({}, {}, eps={}{})", groups_, channels(), options_.eps,
                     norm_option_text(/* affine= */ true, options_.statistics));
}

FilterResponseNormTlu2d::FilterResponseNormTlu2d(int64_t channels, const FilterResponseNormOptions& options)
    : MapNorm("FilterResponseNormTlu2d", channels), options_(options) {
  check_eps("FilterResponseNormTlu2d", options.eps);
  weight_ = register_parameter("weight", ones({channels}));
  bias_ = register_parameter("bias", zeros({channels}));
  tau_ = register_parameter("tau", zeros({channels}));
}

Tensor FilterResponseNormTlu2d::apply(const Tensor& x, Activation activation) {
  check_norm_input("filter_response_norm", x, channels(), 4, 4);
  return filter_response_norm(x, weight_, bias_, tau_, {.eps = options_.eps, .activation = activation});
}

std::string FilterResponseNormTlu2d::name() const {
  return fmt::format("FilterResponseNormTlu2d({}, eps={})", channels(), options_.eps);
}

GlobalResponseNorm::GlobalResponseNorm(int64_t channels, const GlobalResponseNormOptions& options)
    : MapNorm("GlobalResponseNorm", channels), options_(options) {
  check_eps("GlobalResponseNorm", options.eps);
  weight_ = register_parameter("weight", zeros({channels}));
  bias_ = register_parameter("bias", zeros({channels}));
}

Tensor GlobalResponseNorm::apply(const Tensor& x, Activation activation) {
  check_norm_input("global_response_norm", x, channels(), 3, 5);
  return global_response_norm(x, weight_, bias_, {.eps = options_.eps, .activation = activation});
}

std::string GlobalResponseNorm::name() const {
  return fmt::format("GlobalResponseNorm({}, eps={})", channels(), options_.eps);
}

DynamicTanh::DynamicTanh(int64_t channels, const DynamicTanhLayerOptions& options)
    : MapNorm("DynamicTanh", channels), options_(options) {
  alpha_ = register_parameter("alpha", full({1}, options.alpha));
  weight_ = register_parameter("weight", ones({channels}));
  bias_ = register_parameter("bias", zeros({channels}));
}

Tensor DynamicTanh::apply(const Tensor& x, Activation activation) {
  if (options_.axis == 1) {
    check_norm_input("dynamic_tanh", x, channels(), 2, kMaxRank);
  }
  return dynamic_tanh(x, alpha_, weight_, bias_, {.axis = options_.axis, .activation = activation});
}

std::string DynamicTanh::name() const {
  return fmt::format("DynamicTanh({}, alpha={}{})", channels(), options_.alpha,
                     options_.axis == 1 ? "" : fmt::format(", axis={}", options_.axis));
}

std::optional<Bend> DynamicTanh::bend() const {
  // d tanh(u)/du = 1 / cosh²(u), which is a tenth at cosh(u) = √10.
  return Bend{.scale = first_of(alpha_), .shift = 0, .limit = std::acosh(std::sqrt(10.0))};
}

DynamicErf::DynamicErf(int64_t channels, const DynamicErfLayerOptions& options)
    : MapNorm("DynamicErf", channels), options_(options) {
  alpha_ = register_parameter("alpha", full({1}, options.alpha));
  shift_ = register_parameter("shift", full({1}, options.shift));
  weight_ = register_parameter("weight", ones({channels}));
  bias_ = register_parameter("bias", zeros({channels}));
}

Tensor DynamicErf::apply(const Tensor& x, Activation activation) {
  if (options_.axis == 1) {
    check_norm_input("dynamic_erf", x, channels(), 2, kMaxRank);
  }
  return dynamic_erf(x, alpha_, shift_, weight_, bias_, {.axis = options_.axis, .activation = activation});
}

std::string DynamicErf::name() const {
  return fmt::format("DynamicErf({}, alpha={}, shift={}{})", channels(), options_.alpha, options_.shift,
                     options_.axis == 1 ? "" : fmt::format(", axis={}", options_.axis));
}

std::optional<Bend> DynamicErf::bend() const {
  // d erf(u)/du is in proportion to exp(-u²), which is a tenth at u² = log(10).
  return Bend{.scale = first_of(alpha_), .shift = first_of(shift_), .limit = std::sqrt(std::log(10.0))};
}

SeedNorm::SeedNorm(int64_t channels, const SeedNormLayerOptions& options)
    : MapNorm("SeedNorm", channels), options_(options) {
  check_eps("SeedNorm", options.eps);
  weight_ = register_parameter("weight", ones({channels}));
  alpha_ = register_parameter("alpha", ones({channels}));
  beta_ = register_parameter("beta", zeros({channels}));
}

Tensor SeedNorm::apply(const Tensor& x, Activation activation) {
  if (options_.axis == 1) {
    check_norm_input("seed_norm", x, channels(), 2, kMaxRank);
  }
  return seed_norm(x, weight_, alpha_, beta_, {.eps = options_.eps, .axis = options_.axis, .activation = activation});
}

std::string SeedNorm::name() const {
  return fmt::format("SeedNorm({}, eps={}{})", channels(), options_.eps,
                     options_.axis == 1 ? "" : fmt::format(", axis={}", options_.axis));
}

}  // namespace norma::nn

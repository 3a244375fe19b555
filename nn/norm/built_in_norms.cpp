#include "nn/norm/factory.h"

#include "nn/norm/batch_norm.h"
#include "nn/norm/map_norms.h"
#include "nn/norm/norm.h"
#include "nn/norm/options.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

// The options in brackets behind each name, and the layers made from them.

namespace norma::nn {
namespace {

// --- options: read when a spec is parsed, to find mistakes, and again for each layer --------------------------------

double finite(const NormChoice& choice, const std::string& option, double otherwise) {
  const double value = choice.number(option, otherwise);
  check(std::isfinite(value), "norm", "{}: {}: expected a finite number, got {}", choice.name, option, value);
  return value;
}

double at_least(double low, const NormChoice& choice, const std::string& option, double otherwise) {
  const double value = choice.number(option, otherwise);
  check(std::isfinite(value) && value >= low, "norm", "{}: {}: expected a number >= {}, got {}", choice.name, option,
        low, value);
  return value;
}

double momentum_of(const NormChoice& choice, double otherwise, const char* expected = "a number in [0, 1]") {
  const double momentum = choice.number("momentum", otherwise);
  check(momentum >= 0 && momentum <= 1, "norm", "{}: momentum: expected {}, got {}", choice.name, expected, momentum);
  return momentum;
}

/// The options of a layer: each field that a norm can have is read by its name, and has its default where it is not
/// given.
template <class Options>
Options read(const NormChoice& choice) {
  Options options;
  if constexpr (requires { options.eps; }) {
    options.eps = at_least(0, choice, "eps", options.eps);
  }
  if constexpr (requires { options.momentum.reset(); }) {
    if (choice.text("momentum", "") == "none") {
      options.momentum.reset();
    } else {
      options.momentum = momentum_of(choice, *options.momentum, "a number in [0, 1] or none");
    }
  } else if constexpr (requires { options.momentum; }) {
    options.momentum = momentum_of(choice, options.momentum);
  }
  if constexpr (requires { options.affine; }) {
    options.affine = choice.flag("affine", true);  // of instance norm, too, whose layer has none unless it is asked
  }
  if constexpr (requires { options.bias; }) {
    options.bias = choice.flag("bias", options.bias);
  }
  if constexpr (requires { options.offset; }) {
    options.offset = choice.flag("offset", options.offset);
  }
  if constexpr (requires { check_offset("", options.affine, options.offset); }) {
    check_offset("norm: " + choice.name, options.affine, options.offset);
  }
  if constexpr (requires { options.groups; }) {
    options.groups = choice.count("groups", options.groups);
  }
  if constexpr (requires { options.track_running_stats; }) {
    options.track_running_stats = choice.flag("track_running_stats", options.track_running_stats);
  }
  if constexpr (requires { options.statistics; }) {
    options.statistics = statistics_from_string(choice.text("statistics", std::string(to_string(options.statistics))));
  }
  if constexpr (requires { options.biased_running_var; }) {
    options.biased_running_var = choice.flag("biased_running_var", options.biased_running_var);
  }
  if constexpr (requires { options.alpha; }) {
    options.alpha = finite(choice, "alpha", options.alpha);
  }
  if constexpr (requires { options.shift; }) {
    options.shift = finite(choice, "shift", options.shift);
  }
  if constexpr (requires { options.beta; }) {
    options.beta = finite(choice, "beta", options.beta);
    options.k = finite(choice, "k", options.k);
  }
  return options;
}

int64_t steps_of(const NormChoice& choice, const std::string& option) {
  const double steps = at_least(0, choice, option, 0);
  check(steps == std::floor(steps) && steps <= 1e15, "norm", "{}: {}: expected a whole number >= 0, got {}",
        choice.name, option, steps);
  return static_cast<int64_t>(steps);
}

int64_t window_of(const NormChoice& choice) {
  const int64_t size = choice.count("size", 5);
  check(size <= kMostChannels, "norm", "{}: size: expected a whole number from 1 to {}, got {}", choice.name,
        kMostChannels, size);
  return size;
}

/// The groups: the number behind the colon, or by the one behind the slash, or 32 or the largest divisor below that.
int64_t groups_of(std::string_view op, const NormChoice& choice, int64_t channels) {
  if (choice.groups) {
    return *choice.groups;
  }
  if (choice.channels_per_group) {
    check(channels % *choice.channels_per_group == 0, op,
          "num_channels must be divisible by the channels per group, got num_channels {}, channels per group {}",
          channels, *choice.channels_per_group);
    return channels / *choice.channels_per_group;
  }
  int64_t groups = std::min<int64_t>(32, channels);
  while (channels % groups != 0) {
    --groups;
  }
  return groups;
}

// --- layers ---------------------------------------------------------------------------------------------------------

/// Makes a layer by options that have been read and checked.
using MakeLayer = std::function<std::shared_ptr<Module>(int64_t channels)>;

/// Most norms: the layer takes the channels and its options.
template <class Layer, class Options>
MakeLayer plain(const NormChoice& choice) {
  return [options = read<Options>(choice)](int64_t channels) { return std::make_shared<Layer>(channels, options); };
}

MakeLayer frozen_batch(const NormChoice& choice) {
  const double eps = at_least(0, choice, "eps", norma::BatchNormOptions{}.eps);
  return [eps](int64_t channels) { return std::make_shared<FrozenBatchNorm2d>(channels, eps); };
}

MakeLayer ghost_batch(const NormChoice& choice) {
  const auto options = read<BatchNormLayerOptions>(choice);
  const int64_t sub_batch = choice.count("sub_batch", 32);
  return [=](int64_t channels) { return std::make_shared<GhostBatchNorm2d>(channels, sub_batch, options); };
}

MakeLayer batch_renorm(const NormChoice& choice) {
  const auto options = read<BatchNormLayerOptions>(choice);
  const double r_max = at_least(1, choice, "r_max", 3);
  const double d_max = at_least(0, choice, "d_max", 5);
  const BatchRenormSchedule schedule{.warmup_steps = steps_of(choice, "warmup_steps"),
                                     .r_ramp_steps = steps_of(choice, "r_ramp_steps"),
                                     .d_ramp_steps = steps_of(choice, "d_ramp_steps")};
  return [=](int64_t channels) { return std::make_shared<BatchRenorm2d>(channels, r_max, d_max, options, schedule); };
}

MakeLayer group(const NormChoice& choice) {
  return [choice, options = read<NormOptions>(choice)](int64_t channels) {
    return std::make_shared<GroupNorm>(groups_of("group_norm", choice, channels), channels, options);
  };
}

MakeLayer instance(const NormChoice& choice) {
  const auto options = read<InstanceNormLayerOptions>(choice);
  check(options.track_running_stats || choice.text("momentum", "").empty(), "norm",
        "instance: momentum: expected running statistics, which track_running_stats=true keeps, got none");
  return [=](int64_t channels) { return std::make_shared<InstanceNorm2d>(channels, options); };
}

MakeLayer local_response(const NormChoice& choice) {
  const int64_t window = window_of(choice);
  const auto options = read<LocalResponseNormOptions>(choice);
  return [=](int64_t channels) { return std::make_shared<LocalResponseNorm>(window, options, channels); };
}

MakeLayer evonorm_s0(const NormChoice& choice) {
  return [choice, options = read<EvoNormS0Options>(choice)](int64_t channels) {
    return std::make_shared<EvoNorm2dS0>(groups_of("evo_norm_s0", choice, channels), channels, options);
  };
}

MakeLayer none(const NormChoice& /*choice*/) {
  return [](int64_t channels) { return std::make_shared<NoNorm>(channels); };
}

/// A norm: what may stand in brackets, and the function that reads it.
struct BuiltIn {
  const char* name;
  MakeLayer (*read)(const NormChoice& choice);
  std::vector<std::string> options;
  bool takes_groups = false;
  bool needs_pixels = false;
};

std::vector<BuiltIn> table() {
  return {
      {"batch",
       plain<BatchNorm2d, BatchNormLayerOptions>,
       {"eps", "momentum", "affine", "bias", "statistics", "biased_running_var", "track_running_stats"}},
      {"sync_batch",
       plain<SyncBatchNorm2d, BatchNormLayerOptions>,
       {"eps", "momentum", "affine", "bias", "statistics", "biased_running_var", "track_running_stats"}},
      {"frozen_batch", frozen_batch, {"eps"}},
      {"ghost_batch",
       ghost_batch,
       {"eps", "momentum", "affine", "bias", "statistics", "biased_running_var", "track_running_stats", "sub_batch"}},
      {"batch_renorm",
       batch_renorm,
       {"eps", "momentum", "affine", "bias", "statistics", "biased_running_var", "r_max", "d_max", "warmup_steps",
        "r_ramp_steps", "d_ramp_steps"}},
      {"layer2d", plain<LayerNorm2d, LayerNorm2dLayerOptions>, {"eps", "affine", "bias", "statistics", "offset"}},
      {"group", group, {"eps", "affine", "bias", "statistics"}, /* takes_groups= */ true},
      {"instance",
       instance,
       {"eps", "momentum", "affine", "bias", "track_running_stats", "statistics"},
       /* takes_groups= */ false,
       /* needs_pixels= */ true},
      {"rms2d", plain<RMSNorm2d, RmsNorm2dLayerOptions>, {"eps", "affine", "offset", "groups"}},
      {"simple2d", plain<SimpleNorm2d, SimpleNormLayerOptions>, {"eps", "affine", "statistics"}},
      {"local_response", local_response, {"size", "alpha", "beta", "k"}},
      {"evonorm_b0", plain<EvoNorm2dB0, EvoNormB0LayerOptions>, {"eps", "momentum", "statistics"}},
      {"evonorm_s0", evonorm_s0, {"eps", "statistics"}, /* takes_groups= */ true},
      {"frn",
       plain<FilterResponseNormTlu2d, FilterResponseNormOptions>,
       {"eps"},
       /* takes_groups= */ false,
       /* needs_pixels= */ true},
      {"grn", plain<GlobalResponseNorm, GlobalResponseNormOptions>, {"eps"}},
      {"dyt", plain<DynamicTanh, DynamicTanhLayerOptions>, {"alpha"}},
      {"derf", plain<DynamicErf, DynamicErfLayerOptions>, {"alpha", "shift"}},
      {"seednorm", plain<SeedNorm, SeedNormLayerOptions>, {"eps", "offset"}},
      {"none", none, {}},
  };
}

}  // namespace

NormRegistry built_in_norms() {
  NormRegistry norms;
  for (const BuiltIn& norm : table()) {
    const auto make = [read = norm.read](const NormChoice& choice, int64_t channels) { return read(choice)(channels); };
    norms.emplace_back(norm.name,
                       NormDefinition{.make = make,
                                      .options = norm.options,
                                      .takes_groups = norm.takes_groups,
                                      .needs_pixels = norm.needs_pixels,
                                      .check = [read = norm.read](const NormChoice& choice) { read(choice); }});
  }
  return norms;
}

}  // namespace norma::nn

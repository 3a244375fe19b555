#include "nn/norm/built_in_norms.h"

#include "nn/norm/batch_norm.h"
#include "nn/norm/map_norms.h"
#include "nn/norm/norm.h"

#include <algorithm>
#include <cmath>

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

double eps_of(const NormChoice& choice, double otherwise) {
  return at_least(0, choice, "eps", otherwise);
}

double fixed_momentum_of(const NormChoice& choice) {
  const double momentum = choice.number("momentum", 0.1);
  check(momentum >= 0 && momentum <= 1, "norm", "{}: momentum: expected a number in [0, 1], got {}", choice.name,
        momentum);
  return momentum;
}

std::optional<double> momentum_of(const NormChoice& choice) {
  if (choice.text("momentum", "") == "none") {
    return std::nullopt;
  }
  const double momentum = choice.number("momentum", 0.1);
  check(momentum >= 0 && momentum <= 1, "norm", "{}: momentum: expected a number in [0, 1] or none, got {}",
        choice.name, momentum);
  return momentum;
}

Statistics statistics_of(const NormChoice& choice) {
  return statistics_from_string(choice.text("statistics", std::string(to_string(Statistics::stable))));
}

bool affine_of(const NormChoice& choice) {
  return choice.flag("affine", true);
}

bool bias_of(const NormChoice& choice) {
  return choice.flag("bias", true);
}

NormOptions norm_options(const NormChoice& choice, double eps) {
  return {.eps = eps_of(choice, eps),
          .affine = affine_of(choice),
          .bias = bias_of(choice),
          .statistics = statistics_of(choice)};
}

BatchNormLayerOptions batch_options(const NormChoice& choice) {
  return {.eps = eps_of(choice, BatchNormLayerOptions{}.eps),
          .momentum = momentum_of(choice),
          .affine = affine_of(choice),
          .bias = bias_of(choice),
          .track_running_stats = choice.flag("track_running_stats", true),
          .statistics = statistics_of(choice),
          .biased_running_var = choice.flag("biased_running_var", false)};
}

InstanceNormLayerOptions instance_options(const NormChoice& choice) {
  const bool tracks = choice.flag("track_running_stats", false);
  const double momentum = fixed_momentum_of(choice);
  check(tracks || choice.text("momentum", "").empty(), "norm",
        "instance: momentum: expected running statistics, which track_running_stats=true keeps, got none");
  return {.eps = eps_of(choice, InstanceNormLayerOptions{}.eps),
          .momentum = momentum,
          .affine = affine_of(choice),
          .bias = bias_of(choice),
          .track_running_stats = tracks,
          .statistics = statistics_of(choice)};
}

int64_t sub_batch_of(const NormChoice& choice) {
  return choice.count("sub_batch", 32);
}

struct Bounds {
  double r_max;
  double d_max;
};
Bounds bounds_of(const NormChoice& choice) {
  return {at_least(1, choice, "r_max", 3), at_least(0, choice, "d_max", 5)};
}

int64_t steps_of(const NormChoice& choice, const std::string& option) {
  const double steps = at_least(0, choice, option, 0);
  check(steps == std::floor(steps) && steps <= 1e15, "norm", "{}: {}: expected a whole number >= 0, got {}",
        choice.name, option, steps);
  return static_cast<int64_t>(steps);
}

BatchRenormSchedule schedule_of(const NormChoice& choice) {
  return {.warmup_steps = steps_of(choice, "warmup_steps"),
          .r_ramp_steps = steps_of(choice, "r_ramp_steps"),
          .d_ramp_steps = steps_of(choice, "d_ramp_steps")};
}

int64_t window_of(const NormChoice& choice) {
  constexpr int64_t kMost = 65536;  // more than any network has channels: a typing error
  const int64_t size = choice.count("size", 5);
  check(size <= kMost, "norm", "{}: size: expected a whole number from 1 to {}, got {}", choice.name, kMost, size);
  return size;
}

LocalResponseNormOptions local_response_options(const NormChoice& choice) {
  const LocalResponseNormOptions defaults;
  return {.alpha = finite(choice, "alpha", defaults.alpha),
          .beta = finite(choice, "beta", defaults.beta),
          .k = finite(choice, "k", defaults.k)};
}

EvoNormB0LayerOptions evonorm_b0_options(const NormChoice& choice) {
  return {.eps = eps_of(choice, EvoNormB0LayerOptions{}.eps),
          .momentum = fixed_momentum_of(choice),
          .statistics = statistics_of(choice)};
}

EvoNormS0Options evonorm_s0_options(const NormChoice& choice) {
  return {.eps = eps_of(choice, EvoNormS0Options{}.eps), .statistics = statistics_of(choice)};
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

using Layer = std::shared_ptr<Module>;

Layer make_batch(const NormChoice& choice, int64_t channels) {
  return std::make_shared<BatchNorm2d>(channels, batch_options(choice));
}

Layer make_frozen_batch(const NormChoice& choice, int64_t channels) {
  return std::make_shared<FrozenBatchNorm2d>(channels, eps_of(choice, norma::BatchNormOptions{}.eps));
}

Layer make_ghost_batch(const NormChoice& choice, int64_t channels) {
  return std::make_shared<GhostBatchNorm2d>(channels, sub_batch_of(choice), batch_options(choice));
}

Layer make_batch_renorm(const NormChoice& choice, int64_t channels) {
  const Bounds bounds = bounds_of(choice);
  return std::make_shared<BatchRenorm2d>(channels, bounds.r_max, bounds.d_max, batch_options(choice),
                                         schedule_of(choice));
}

Layer make_layer2d(const NormChoice& choice, int64_t channels) {
  const NormOptions options = norm_options(choice, LayerNorm2dLayerOptions{}.eps);
  return std::make_shared<LayerNorm2d>(
      channels,
      LayerNorm2dLayerOptions{
          .eps = options.eps, .affine = options.affine, .bias = options.bias, .statistics = options.statistics});
}

Layer make_group(const NormChoice& choice, int64_t channels) {
  return std::make_shared<GroupNorm>(groups_of("group_norm", choice, channels), channels,
                                     norm_options(choice, NormOptions{}.eps));
}

Layer make_instance(const NormChoice& choice, int64_t channels) {
  return std::make_shared<InstanceNorm2d>(channels, instance_options(choice));
}

Layer make_rms2d(const NormChoice& choice, int64_t channels) {
  return std::make_shared<RMSNorm2d>(
      channels, RmsNorm2dLayerOptions{.eps = eps_of(choice, RmsNorm2dLayerOptions{}.eps), .affine = affine_of(choice)});
}

Layer make_simple2d(const NormChoice& choice, int64_t channels) {
  return std::make_shared<SimpleNorm2d>(channels,
                                        SimpleNormLayerOptions{.eps = eps_of(choice, SimpleNormLayerOptions{}.eps),
                                                               .affine = affine_of(choice),
                                                               .statistics = statistics_of(choice)});
}

Layer make_local_response(const NormChoice& choice, int64_t channels) {
  return std::make_shared<LocalResponseNorm>(window_of(choice), local_response_options(choice), channels);
}

Layer make_evonorm_b0(const NormChoice& choice, int64_t channels) {
  return std::make_shared<EvoNorm2dB0>(channels, evonorm_b0_options(choice));
}

Layer make_evonorm_s0(const NormChoice& choice, int64_t channels) {
  return std::make_shared<EvoNorm2dS0>(groups_of("evo_norm_s0", choice, channels), channels,
                                       evonorm_s0_options(choice));
}

Layer make_frn(const NormChoice& choice, int64_t channels) {
  return std::make_shared<FilterResponseNormTlu2d>(
      channels, FilterResponseNormOptions{.eps = eps_of(choice, FilterResponseNormOptions{}.eps)});
}

Layer make_grn(const NormChoice& choice, int64_t channels) {
  return std::make_shared<GlobalResponseNorm>(
      channels, GlobalResponseNormOptions{.eps = eps_of(choice, GlobalResponseNormOptions{}.eps)});
}

Layer make_dyt(const NormChoice& choice, int64_t channels) {
  return std::make_shared<DynamicTanh>(
      channels, DynamicTanhLayerOptions{.alpha = finite(choice, "alpha", DynamicTanhLayerOptions{}.alpha)});
}

Layer make_none(const NormChoice& /*choice*/, int64_t channels) {
  return std::make_shared<NoNorm>(channels);
}

// --- checks: every option of a spec, once ---------------------------------------------------------------------------

void check_eps(const NormChoice& choice) {
  (void)eps_of(choice, 0);
}

void check_eps_and_statistics(const NormChoice& choice) {
  (void)norm_options(choice, 0);
}

void check_rms2d(const NormChoice& choice) {
  check_eps(choice);
  (void)affine_of(choice);
}

void check_instance(const NormChoice& choice) {
  (void)instance_options(choice);
}

void check_batch(const NormChoice& choice) {
  (void)batch_options(choice);
}

void check_ghost_batch(const NormChoice& choice) {
  (void)batch_options(choice);
  (void)sub_batch_of(choice);
}

void check_batch_renorm(const NormChoice& choice) {
  (void)batch_options(choice);
  (void)bounds_of(choice);
  (void)schedule_of(choice);
}

void check_local_response(const NormChoice& choice) {
  (void)window_of(choice);
  (void)local_response_options(choice);
}

void check_evonorm_b0(const NormChoice& choice) {
  (void)evonorm_b0_options(choice);
}

void check_dyt(const NormChoice& choice) {
  (void)finite(choice, "alpha", 0);
}

std::vector<std::string> batch_option_names(std::initializer_list<std::string> more = {}) {
  std::vector<std::string> names{"eps", "momentum", "affine", "bias", "statistics", "biased_running_var"};
  names.insert(names.end(), more);
  return names;
}

}  // namespace

NormRegistry built_in_norms() {
  return {
      {"batch", {.make = make_batch, .options = batch_option_names({"track_running_stats"}), .check = check_batch}},
      {"frozen_batch", {.make = make_frozen_batch, .options = {"eps"}, .check = check_eps}},
      {"ghost_batch",
       {.make = make_ghost_batch,
        .options = batch_option_names({"track_running_stats", "sub_batch"}),
        .check = check_ghost_batch}},
      {"batch_renorm",
       {.make = make_batch_renorm,
        .options = batch_option_names({"r_max", "d_max", "warmup_steps", "r_ramp_steps", "d_ramp_steps"}),
        .check = check_batch_renorm}},
      {"layer2d",
       {.make = make_layer2d, .options = {"eps", "affine", "bias", "statistics"}, .check = check_eps_and_statistics}},
      {"group",
       {.make = make_group,
        .options = {"eps", "affine", "bias", "statistics"},
        .takes_groups = true,
        .check = check_eps_and_statistics}},
      {"instance",
       {.make = make_instance,
        .options = {"eps", "momentum", "affine", "bias", "track_running_stats", "statistics"},
        .needs_pixels = true,
        .check = check_instance}},
      {"rms2d", {.make = make_rms2d, .options = {"eps", "affine"}, .check = check_rms2d}},
      {"simple2d",
       {.make = make_simple2d, .options = {"eps", "affine", "statistics"}, .check = check_eps_and_statistics}},
      {"local_response",
       {.make = make_local_response, .options = {"size", "alpha", "beta", "k"}, .check = check_local_response}},
      {"evonorm_b0",
       {.make = make_evonorm_b0, .options = {"eps", "momentum", "statistics"}, .check = check_evonorm_b0}},
      {"evonorm_s0",
       {.make = make_evonorm_s0,
        .options = {"eps", "statistics"},
        .takes_groups = true,
        .check = check_eps_and_statistics}},
      {"frn", {.make = make_frn, .options = {"eps"}, .needs_pixels = true, .check = check_eps}},
      {"grn", {.make = make_grn, .options = {"eps"}, .check = check_eps}},
      {"dyt", {.make = make_dyt, .options = {"alpha"}, .check = check_dyt}},
      {"none", {.make = make_none, .options = {}}},
  };
}

}  // namespace norma::nn

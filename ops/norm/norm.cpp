#include "ops/norm/norm.h"

#include "base/error.h"
#include "core/factory.h"
#include "core/op.h"
#include "ops/norm/node.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <algorithm>
#include <cmath>
#include <limits>

// The norms over a layer, a group, an image or a weight: each checks its arguments, fills in a NormSpec and calls
// norm_act(), which all norms share. batch_norm.cpp has the norms over a batch.

namespace norma {

using namespace norm_detail;

std::string_view to_string(Statistics statistics) {
  switch (statistics) {
    case Statistics::stable: return "stable";
    case Statistics::welford: return "welford";
    case Statistics::two_pass: return "two_pass";
    case Statistics::compensated: return "compensated";
    case Statistics::sum_of_squares: return "sum_of_squares";
  }
  return "?";
}

const std::vector<Statistics>& all_statistics() {
  static const std::vector<Statistics> all = {Statistics::stable, Statistics::welford, Statistics::two_pass,
                                              Statistics::compensated, Statistics::sum_of_squares};
  return all;
}

Statistics statistics_from_string(std::string_view name) {
  for (const Statistics statistics : all_statistics()) {
    if (to_string(statistics) == name) {
      return statistics;
    }
  }
  fail("norm", "statistics: expected stable, welford, two_pass, compensated or sum_of_squares, got {}", name);
}

// norm.h says these names, as defaults of an argument.
template struct OpName<"normalize">;
template struct OpName<"norm_act">;

// --- any norm -------------------------------------------------------------------------------------------------------

Tensor normalize(const Tensor& x, const NormSpec& spec, const Tensor& weight, const Tensor& bias,
                 NormStatistics* statistics, std::string_view op) {
  return norm_act(x, spec, weight, bias, {}, statistics, op);
}

Tensor norm_act(const Tensor& x, const NormSpec& spec, const Tensor& weight, const Tensor& bias, const ActOptions& then,
                NormStatistics* statistics, std::string_view op) {
  const NormSpec checked = checked_spec(op, x, spec);
  check_affine(op, weight, bias, x, checked.affine);
  return record_norm(op, x, checked, weight, bias, {.statistics = statistics, .then = then});
}

NormStatistics norm_statistics(const Tensor& x, const NormSpec& spec, std::string_view op) {
  return compute_statistics(op, x, checked_spec(op, x, spec));
}

Tensors normalize_backward(const Tensor& dy, const Tensor& x, const NormSpec& spec, const Tensor& weight,
                           const Tensor& bias) {
  constexpr std::string_view op = "normalize_backward";
  NormNode node{{}, "normalize", checked_spec(op, x, spec)};
  check_like(op, "dy", dy, x.sizes(), x);
  check_affine(op, weight, bias, x, node.spec.affine);
  node.affine = weight.defined() || bias.defined();
  node.bias_dtype = bias.defined() ? bias.dtype() : x.dtype();
  node.x = x;
  node.weight = weight;
  node.stats = stats_for_backward(op, node);
  Tensors gradients = record_norm_backward(node, dy, {true, weight.defined(), bias.defined(), false});
  gradients.pop_back();
  return gradients;
}

// --- the norms by name ----------------------------------------------------------------------------------------------

namespace {

/// The last axes of x. Throws Error unless normalized_shape has their sizes.
Axes last_axes(std::string_view op, const Tensor& x, const Sizes& normalized_shape) {
  check_defined(op, "input", x);
  check(!normalized_shape.empty(), op, "normalized_shape: expected at least 1 size, got []");
  const int64_t first = x.rank() - normalized_shape.size();
  const bool fits =
      first >= 0 && std::equal(normalized_shape.begin(), normalized_shape.end(), x.sizes().begin() + first);
  check(fits, op, "normalized_shape: expected the last sizes of the input {}, got {}", x.sizes(), normalized_shape);
  return axes_from(first, x.rank());
}

/// The value of torch.finfo(dtype).eps; 16 bits are computed in float32.
double machine_epsilon(DType dtype) {
  return dtype == DType::float64 ? std::numeric_limits<double>::epsilon()
                                 : static_cast<double>(std::numeric_limits<float>::epsilon());
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Sizes& normalized_shape, const Tensor& weight, const Tensor& bias,
                  const LayerNormOptions& options, const ActOptions& then) {
  constexpr std::string_view op = named<"layer_norm">;
  const Axes axes = last_axes(op, x, normalized_shape);
  return norm_act(x, {.reduce = axes, .affine = axes, .statistics = options.statistics, .eps = options.eps}, weight,
                  bias, then, nullptr, op);
}

Tensor layer_norm_2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const LayerNorm2dOptions& options,
                     const ActOptions& then) {
  constexpr std::string_view op = named<"layer_norm_2d">;
  check_rank(op, "input", x, 4);
  return norm_act(x, {.reduce = {1}, .affine = {1}, .statistics = options.statistics, .eps = options.eps}, weight, bias,
                  then, nullptr, op);
}

Tensor rms_norm(const Tensor& x, const Sizes& normalized_shape, const Tensor& weight, const RmsNormOptions& options,
                const ActOptions& then) {
  constexpr std::string_view op = named<"rms_norm">;
  const Axes axes = last_axes(op, x, normalized_shape);
  return norm_act(x,
                  {.reduce = axes,
                   .affine = axes,
                   .eps = options.eps.value_or(machine_epsilon(x.dtype())),
                   .centring = Centring::none},
                  weight, {}, then, nullptr, op);
}

Tensor rms_norm_2d(const Tensor& x, const Tensor& weight, const RmsNorm2dOptions& options, const ActOptions& then) {
  constexpr std::string_view op = named<"rms_norm_2d">;
  check_rank(op, "input", x, 4);
  check(options.num_groups >= 1, op, "num_groups: expected at least 1, got {}", options.num_groups);
  return norm_act(
      x, {.reduce = {1}, .affine = {1}, .groups = options.num_groups, .eps = options.eps, .centring = Centring::none},
      weight, {}, then, nullptr, op);
}

Tensor simple_norm(const Tensor& x, const Sizes& normalized_shape, const Tensor& weight,
                   const SimpleNormOptions& options, const ActOptions& then) {
  constexpr std::string_view op = named<"simple_norm">;
  const Axes axes = last_axes(op, x, normalized_shape);
  return norm_act(x,
                  {.reduce = axes,
                   .affine = axes,
                   .statistics = options.statistics,
                   .eps = options.eps,
                   .centring = Centring::deviation,
                   .correction = 1},
                  weight, {}, then, nullptr, op);
}

Tensor simple_norm_2d(const Tensor& x, const Tensor& weight, const SimpleNormOptions& options, const ActOptions& then) {
  constexpr std::string_view op = named<"simple_norm_2d">;
  check_rank(op, "input", x, 4);
  return norm_act(x,
                  {.reduce = {1},
                   .affine = {1},
                   .statistics = options.statistics,
                   .eps = options.eps,
                   .centring = Centring::deviation,
                   .correction = 1},
                  weight, {}, then, nullptr, op);
}

Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight, const Tensor& bias,
                  const GroupNormOptions& options, const ActOptions& then) {
  constexpr std::string_view op = named<"group_norm">;
  check_input(op, x, 2, 5);
  check(num_groups >= 1, op, "num_groups: expected at least 1, got {}", num_groups);
  return norm_act(x,
                  {.reduce = axes_from(1, x.rank()),
                   .affine = {1},
                   .groups = num_groups,
                   .statistics = options.statistics,
                   .eps = options.eps},
                  weight, bias, then, nullptr, op);
}

Tensor instance_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const InstanceNormOptions& options,
                     const ActOptions& then) {
  constexpr std::string_view op = named<"instance_norm">;
  check_input(op, x, 3, 5);
  const int64_t maps = x.size(0) * x.size(1);
  check(maps == 0 || x.numel() / maps != 1, op, "input: expected more than 1 spatial element, got sizes {}", x.sizes());
  return norm_act(
      x, {.reduce = axes_from(2, x.rank()), .affine = {1}, .statistics = options.statistics, .eps = options.eps},
      weight, bias, then, nullptr, op);
}

Tensor standardize_weight(const Tensor& weight, const Tensor& gain, const StandardizeWeightOptions& options) {
  constexpr std::string_view op = named<"standardize_weight">;
  check_floating(op, "weight", weight);
  check(weight.rank() >= 2 && weight.rank() <= 5, op, "weight: expected rank 2 to 5, got rank {} (sizes {})",
        weight.rank(), weight.sizes());
  const int64_t out = weight.size(0);
  const int64_t fan_in = out == 0 ? 0 : weight.numel() / out;
  check(fan_in != 1, op, "weight: expected more than 1 value per output channel, got sizes {}", weight.sizes());
  const DType dtype = compute_dtype(weight.dtype());
  Tensor scale;
  if (gain.defined()) {
    check(gain.numel() == out, op, "gain: expected {} values, got sizes {}", out, gain.sizes());
    check_parameter(op, "gain", gain, weight);
    scale = reshape(to(gain, dtype), {out});
  }
  if (options.gamma) {
    const double factor = *options.gamma / std::sqrt(static_cast<double>(fan_in));
    scale = scale.defined() ? mul(scale, factor) : full({out}, factor, {.dtype = dtype, .device = weight.device()});
  }
  const NormSpec spec{
      .reduce = axes_from(1, weight.rank()), .affine = {0}, .statistics = options.statistics, .eps = options.eps};
  return normalize(weight, spec, scale, {}, nullptr, op);
}

}  // namespace norma

#include "ops/map_norm/norms.h"

#include "core/factory.h"
#include "core/op.h"
#include "ops/map_norm/map_norm.h"
#include "ops/norm/node.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/pad.h"
#include "ops/shape/view.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace norma {

using namespace norm_detail;

// --- filter response norm -------------------------------------------------------------------------------------------

namespace {

NormSpec filter_response_spec(const Tensor& x, double eps) {
  return {.reduce = axes_from(2, x.rank()), .affine = {1}, .eps = eps, .centring = Centring::none};
}

/// inputs: x, weight, bias, tau
Tensor composed_filter_response(const Tensors& inputs, double eps) {
  const Tensor& x = inputs[0];
  const Tensor wide = in_compute_dtype(x);
  const Tensor y = normalize(wide, filter_response_spec(x, eps), in_dtype(inputs[1], wide.dtype()),
                             in_dtype(inputs[2], wide.dtype()));
  return back_to(x, maximum(y, along_channels(inputs[3], y)));
}

}  // namespace

Tensor filter_response_norm(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& tau,
                            const FilterResponseNormOptions& options) {
  const Op op(named<"filter_response_norm">);
  const Tensor x = op.input("input", input);
  check_input(op, x, 3, 5);
  check_affine(op, weight, bias, x);
  check_optional(op, "tau", tau, x);
  check(options.eps >= 0, op, "eps: expected a value >= 0, got {}", options.eps);
  const NormSpec spec = filter_response_spec(x, options.eps);
  if (!tau.defined()) {
    return norm_act(x, spec, weight, bias, {.activation = options.activation}, nullptr, op);
  }
  return map_norm({.op = op,
                   .function = kernels::MapFunction::threshold,
                   .activation = options.activation,
                   .composed = [eps = options.eps](const Tensors& in) { return composed_filter_response(in, eps); }},
                  {x, weight, bias, tau},
                  [&](const Tensor& in_order) -> Tensors { return {map_stats(op, in_order, spec)}; });
}

// --- global response norm -------------------------------------------------------------------------------------------

namespace {

/// Without eps, rstd is the inverse of the root mean square, whatever the range of x.
NormSpec root_mean_square_spec(const Tensor& x) {
  return {.reduce = axes_from(2, x.rank()), .eps = 0, .centring = Centring::none};
}

/// inputs: x, weight, bias
Tensor composed_global(const Tensors& inputs, double eps) {
  const Tensor& x = inputs[0];
  const Tensor wide = in_compute_dtype(x);
  const Tensor root = deviation("global_response_norm", wide, root_mean_square_spec(x));
  const double pixels = static_cast<double>(x.numel()) / static_cast<double>(std::max<int64_t>(1, root.numel()));
  const Tensor g = x.numel() == 0 ? zeros_like(root) : mul(root, std::sqrt(pixels));  // the mean of nothing is NaN
  const ReduceOptions keep{.keepdim = true};
  // Numerator and denominator are scaled, since the derivative of a quotient squares the denominator.
  const Tensor scale = inverse_power_of_two("global_response_norm", mean(g, {1}, keep));
  const Tensor scaled = mul(g, scale);
  const Tensor n = div(scaled, add(mean(scaled, {1}, keep), mul(scale, eps)));
  // x + weight * (x * n) + bias = x * (1 + weight * n) + bias: the bracket is one number per map.
  const Tensor bracket = add(inputs[1].defined() ? mul(n, along_channels(inputs[1], wide)) : n, 1);
  return back_to(x, scale_and_shift(mul(wide, bracket), {}, inputs[2]));
}

}  // namespace

Tensor global_response_norm(const Tensor& input, const Tensor& weight, const Tensor& bias,
                            const GlobalResponseNormOptions& options) {
  const Op op(named<"global_response_norm">);
  const Tensor x = op.input("input", input);
  check_input(op, x, 3, 5);
  check_affine(op, weight, bias, x);
  check(options.eps >= 0, op, "eps: expected a value >= 0, got {}", options.eps);
  const NormSpec spec = root_mean_square_spec(x);
  return map_norm({.op = op,
                   .function = kernels::MapFunction::affine,
                   .activation = options.activation,
                   .eps = options.eps,
                   .composed = [eps = options.eps](const Tensors& in) { return composed_global(in, eps); }},
                  {x, weight, bias},
                  [&](const Tensor& in_order) -> Tensors { return {map_stats(op, in_order, spec)}; });
}

// --- local response norm --------------------------------------------------------------------------------------------

namespace {

constexpr std::string_view kLocalResponse = named<"local_response_norm">;

/// The sum over channels c - below to c + above, for each channel c.
Tensor window_sums(const Tensor& x, int64_t below, int64_t above) {
  const int64_t channels = x.size(1);
  // Neighbours further away than the last channel are 0 for every channel.
  below = std::min(below, std::max<int64_t>(0, channels - 1));
  above = std::min(above, std::max<int64_t>(0, channels - 1));
  Sizes before = Sizes::filled(x.rank(), 0);
  Sizes after = Sizes::filled(x.rank(), 0);
  before[1] = below;
  after[1] = above;
  const Tensor padded = pad(x, before, after);
  Tensor sums = narrow(padded, 1, 0, channels);
  for (int64_t shift = 1; shift <= below + above; ++shift) {
    sums = add(sums, narrow(padded, 1, shift, channels));
  }
  return sums;
}

/// y = x * (k + alpha / size * sums)^-beta
Tensor composed_local_response(const Tensor& x, int64_t size, const LocalResponseNormOptions& options) {
  const Tensor wide = computed_in(DType::float64, x);  // its squares leave the range of float32
  const Tensor sums = window_sums(mul(wide, wide), size / 2, (size - 1) / 2);
  const Tensor base = add(mul(sums, options.alpha / static_cast<double>(size)), options.k);
  return back_to(x, mul(wide, pow(base, -options.beta)));
}

/// Returns y if dy is undefined, else dx.
Tensor run_local_response(const Tensor& x, const Tensor& dy, int64_t size, const LocalResponseNormOptions& options) {
  OpScope::set_implementation("windows");
  const MapLayout layout(x, 1);
  const Tensor x_in_order = layout.in_order(x, x.dtype());
  const Tensor dy_in_order = dy.defined() ? layout.in_order(dy, x.dtype()) : Tensor{};
  const Tensor result = layout.empty(x.dtype(), x.device());
  const int64_t furthest = x.size(1) - 1;  // neighbours further away do not exist
  const kernels::LocalResponseProblem problem{.shape = layout.shape(),
                                              .below = std::min(size / 2, furthest),
                                              .above = std::min((size - 1) / 2, furthest),
                                              .scale = options.alpha / static_cast<double>(size),
                                              .k = options.k,
                                              .beta = options.beta,
                                              .relu = options.activation == Activation::relu};
  kernels::map_norm_kernels.at(kLocalResponse, x.device())
      ->local_response(
          x.dtype(), problem,
          {.x = x_in_order.device_pointer(), .dy = pointer_or_null(dy_in_order), .result = result.device_pointer()});
  return layout.copy_back(result);
}

}  // namespace

Tensor local_response_norm(const Tensor& input, int64_t size, const LocalResponseNormOptions& options) {
  const Op op(kLocalResponse);
  const Tensor x = op.input("input", input);
  check_input(op, x, 3, kMaxRank);
  check(size >= 1, op, "size: expected at least 1, got {}", size);
  if (x.numel() == 0 || in_parts()) {
    return activate(composed_local_response(x, size, options), options.activation);
  }
  const OpScope scope([&] { return OpWork{.op = std::string(kLocalResponse), .bytes = bytes_of(x, x)}; });
  return record_map_norm(
      {.op = kLocalResponse,
       .activation = options.activation,
       .inputs = {x},
       .stats = {},
       .y = run_local_response(x, {}, size, options),
       .composed = [size, options](const Tensors& in) { return composed_local_response(in[0], size, options); },
       .backward = [size, options](const Tensor& dy, const Tensors& in, const Tensors&) -> Tensors {
         return {run_local_response(in[0], dy, size, options)};
       }});
}

// --- evo norms ------------------------------------------------------------------------------------------------------

namespace {

/// v must be defined; weight and bias may be undefined.
void check_evo_parameters(std::string_view op, const Tensor& x, const Tensor& v, const Tensor& weight,
                          const Tensor& bias) {
  check_per_channel(op, "v", v, x);
  check_affine(op, weight, bias, x);
}

// --- B0 -------------------------------------------------------------------------------------------------------------

NormSpec spec_of_maps(const Tensor& x, const EvoNormB0Options& options) {
  return {.reduce = axes_from(2, x.rank()), .statistics = options.statistics, .eps = options.eps};
}
NormSpec spec_of_batch(const Tensor& x, const EvoNormB0Options& options) {
  return {.reduce = axes_from(0, x.rank()).without(1), .statistics = options.statistics, .eps = options.eps};
}

/// inputs: x, v, weight, bias. fixed_var: (C), or undefined for the variance of the batch.
Tensor composed_b0(const Tensors& inputs, const Tensor& fixed_var, const EvoNormB0Options& options) {
  constexpr std::string_view op = "evo_norm_b0";
  const Tensor& x = inputs[0];
  const Tensor wide = in_compute_dtype(x);
  const Tensor left = fixed_var.defined() ? sqrt(add(along_channels(fixed_var, wide), options.eps))
                                          : deviation(op, wide, spec_of_batch(x, options));
  // Numerator and denominator are scaled, since the derivative of a quotient squares the denominator.
  const Tensor scale = inverse_power_of_two(op, left);
  const Tensor numerator = mul(wide, scale);
  const Tensor right =
      add(mul(numerator, along_channels(inputs[1], wide)), mul(deviation(op, wide, spec_of_maps(x, options)), scale));
  const Tensor y = div(numerator, maximum(right, mul(left, scale)));
  return back_to(x, scale_and_shift(y, inputs[2], inputs[3]));
}

// --- S0 -------------------------------------------------------------------------------------------------------------

NormSpec spec_of_groups(const Tensor& x, int64_t num_groups, const EvoNormS0Options& options) {
  return {.reduce = axes_from(1, x.rank()),
          .affine = {1},
          .groups = num_groups,
          .statistics = options.statistics,
          .eps = options.eps};
}

/// inputs: x, v, weight, bias
Tensor composed_s0(const Tensors& inputs, const NormSpec& spec) {
  const Tensor& x = inputs[0];
  const Tensor wide = in_compute_dtype(x);
  NormSpec by_deviation = spec;
  by_deviation.centring = Centring::deviation;
  const Tensor scaled = normalize(wide, by_deviation, in_dtype(inputs[2], wide.dtype()), {}, nullptr, "evo_norm_s0");
  const Tensor gate = sigmoid(mul(wide, along_channels(inputs[1], wide)));
  return back_to(x, scale_and_shift(mul(scaled, gate), {}, inputs[3]));
}

}  // namespace

Tensor evo_norm_b0(const Tensor& input, const Tensor& running_var, const Tensor& v, const Tensor& weight,
                   const Tensor& bias, const EvoNormB0Options& options) {
  const Op op(named<"evo_norm_b0">);
  const Tensor x = op.input("input", input);
  check_input(op, x, 3, 5);
  check_evo_parameters(op, x, v, weight, bias);
  check_optional(op, "running_var", running_var, x);
  check(options.eps >= 0, op, "eps: expected a value >= 0, got {}", options.eps);
  check(options.momentum >= 0 && options.momentum <= 1, op, "momentum: expected a value in [0, 1], got {}",
        options.momentum);
  const bool fixed = !options.training && running_var.defined();
  const int64_t count = x.size(1) == 0 ? 0 : x.numel() / x.size(1);
  check(fixed || count != 1, op, "input: expected more than 1 value per channel {}, got sizes {}",
        options.training ? "when training" : "without running statistics", x.sizes());
  const Tensor fixed_var = fixed ? clone(running_var.detach()) : Tensor{};  // as it is now, for higher derivatives
  const auto stats_of = [&](const Tensor& in_order) -> Tensors {
    const Tensor maps = map_stats(op, in_order, spec_of_maps(x, options));
    if (fixed) {
      return {maps, fixed_stats_of(op, zeros_like(fixed_var), fixed_var, options.eps, maps.dtype())};
    }
    Tensor var;
    const Tensor batch = map_stats(op, in_order, spec_of_batch(x, options), &var);
    if (options.training && running_var.defined()) {
      const auto n = static_cast<double>(count);
      update_running(op, running_var, var, options.momentum, n / (n - 1));
    }
    return {maps, batch};
  };
  return map_norm({.op = op,
                   .function = kernels::MapFunction::evo,
                   .activation = options.activation,
                   .fixed_stats = fixed,
                   .composed = [fixed_var, options](const Tensors& in) { return composed_b0(in, fixed_var, options); }},
                  {x, v, weight, bias}, stats_of);
}

Tensor evo_norm_s0(const Tensor& input, int64_t num_groups, const Tensor& v, const Tensor& weight, const Tensor& bias,
                   const EvoNormS0Options& options) {
  const Op op(named<"evo_norm_s0">);
  const Tensor x = op.input("input", input);
  check_input(op, x, 3, 5);
  check(num_groups >= 1, op, "num_groups: expected at least 1, got {}", num_groups);
  check_evo_parameters(op, x, v, weight, bias);
  const NormSpec spec = checked_spec(op, x, spec_of_groups(x, num_groups, options));
  return map_norm({.op = op,
                   .function = kernels::MapFunction::gate,
                   .activation = options.activation,
                   .composed = [spec](const Tensors& in) { return composed_s0(in, spec); }},
                  {x, v, weight, bias},
                  [&](const Tensor& in_order) -> Tensors { return {map_stats(op, in_order, spec)}; });
}

// --- bounded norms --------------------------------------------------------------------------------------------------

namespace {

struct NamedTensor {
  std::string_view name;
  Tensor tensor;
};

/// What the norms y = f(alpha * x + shift) * weight + bias differ in. inputs: x, the scalars, weight, bias.
struct BoundedNorm {
  std::string_view op;
  kernels::MapFunction function;
  std::vector<NamedTensor> scalars;  ///< alpha; and shift, if there is one
  Tensor (*bounded)(const Tensor& z);
};

Tensor composed_bounded(const BoundedNorm& norm, const Tensors& inputs, int64_t axis) {
  const Tensor& x = inputs[0];
  const Tensor wide = in_compute_dtype(x);
  const size_t scalars = norm.scalars.size();
  Tensor z = mul(wide, to(inputs[1], wide.dtype()));
  if (scalars > 1) {
    z = add(z, to(inputs[2], wide.dtype()));
  }
  return back_to(x, scale_and_shift(norm.bounded(z), inputs[scalars + 1], inputs[scalars + 2], axis));
}

Tensor apply_bounded(const BoundedNorm& norm, const Tensor& input, const Tensor& weight, const Tensor& bias,
                     const BoundedNormOptions& options) {
  const Op op(norm.op);
  const Tensor x = op.input("input", input);
  check_input(op, x, 1, kMaxRank);
  Tensors inputs{x};
  for (const auto& [name, scalar] : norm.scalars) {
    check_defined(op, name, scalar);
    check(scalar.numel() == 1 && scalar.rank() <= 1, op, "{}: expected sizes [1] or [], got {}", name, scalar.sizes());
    check_parameter(op, name, scalar, x);
    inputs.push_back(scalar);
  }
  const int64_t axis = normalize_axis(op, options.axis, x.rank());
  for (const auto& [argument, parameter] : {std::pair{"weight", weight}, std::pair{"bias", bias}}) {
    if (parameter.defined()) {
      check_sizes(op, argument, parameter, {x.size(axis)});
      check_parameter(op, argument, parameter, x);
    }
    inputs.push_back(parameter);
  }
  return map_norm({.op = op,
                   .function = norm.function,
                   .activation = options.activation,
                   .axis = axis,
                   .composed = [norm, axis](const Tensors& in) { return composed_bounded(norm, in, axis); }},
                  inputs);
}

}  // namespace

Tensor dynamic_tanh(const Tensor& x, const Tensor& alpha, const Tensor& weight, const Tensor& bias,
                    const BoundedNormOptions& options) {
  return apply_bounded({.op = named<"dynamic_tanh">,
                        .function = kernels::MapFunction::tanh,
                        .scalars = {{"alpha", alpha}},
                        .bounded = [](const Tensor& z) { return tanh(z); }},
                       x, weight, bias, options);
}

Tensor dynamic_erf(const Tensor& x, const Tensor& alpha, const Tensor& shift, const Tensor& weight, const Tensor& bias,
                   const BoundedNormOptions& options) {
  return apply_bounded({.op = named<"dynamic_erf">,
                        .function = kernels::MapFunction::erf,
                        .scalars = {{"alpha", alpha}, {"shift", shift}},
                        .bounded = [](const Tensor& z) { return erf(z); }},
                       x, weight, bias, options);
}

// --- seed norm ------------------------------------------------------------------------------------------------------

Tensor seed_norm(const Tensor& input, const Tensor& weight, const Tensor& alpha, const Tensor& beta,
                 const SeedNormOptions& options) {
  const Op op(named<"seed_norm">);
  const Tensor x = op.input("input", input);
  check_input(op, x, 1, kMaxRank);
  const int64_t axis = normalize_axis(op, options.axis, x.rank());
  const std::pair<std::string_view, const Tensor&> parameters[] = {
      {"weight", weight}, {"alpha", alpha}, {"beta", beta}};
  for (const auto& [name, parameter] : parameters) {
    check_sizes(op, name, parameter, {x.size(axis)});
    check_parameter(op, name, parameter, x);
  }
  const Tensor wide = in_compute_dtype(x);
  const auto of_channels = [&](const Tensor& parameter) { return to(parameter, wide.dtype()); };
  const NormSpec rms{.reduce = {axis}, .affine = {axis}, .eps = options.eps, .centring = Centring::none};
  const Tensor t = tanh(sum(mul(wide, along_channels(beta, wide, axis)), {axis}, {.keepdim = true}));
  // Both terms are norms with a weight, which compute x / rms(x) again in backward and keep x alone. x / rms(x) as a
  // tensor, and the scale of each element as another, would be kept beside it.
  const Tensor dynamic = mul(normalize(wide, rms, of_channels(alpha), {}, nullptr, op), t);
  return back_to(x, norm_act(wide, rms, of_channels(weight), {},
                             {.activation = options.activation, .residual = dynamic}, nullptr, op));
}

}  // namespace norma

#include "ops/map_norm/norms.h"

#include "core/autocast.h"
#include "core/factory.h"
#include "ops/map_norm/map_norm.h"
#include "ops/norm/checks.h"
#include "ops/norm/node.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"

namespace norma {

using namespace norm_detail;

namespace {

/// v must be defined; weight and bias may be undefined.
void check_parameters(std::string_view op, const Tensor& x, const Tensor& v, const Tensor& weight, const Tensor& bias) {
  check_per_channel(op, "v", v, x);
  check_optional_per_channel(op, "weight", weight, x);
  check_optional_per_channel(op, "bias", bias, x);
}

// --- B0 -------------------------------------------------------------------------------------------------------------

NormSpec spec_of_maps(const Tensor& x, const EvoNormB0Options& options) {
  return {.reduce = axes_from(2, x.rank()), .statistics = options.statistics, .eps = options.eps};
}
NormSpec spec_of_batch(const Tensor& x, const EvoNormB0Options& options) {
  NormSpec spec = spec_of_maps(x, options);
  spec.reduce.insert(0, 0);
  return spec;
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
          .eps = options.eps,
          .centring = Centring::deviation};
}

/// inputs: x, v, weight, bias
Tensor composed_s0(const Tensors& inputs, const NormSpec& spec) {
  const Tensor& x = inputs[0];
  const Tensor wide = in_compute_dtype(x);
  const Tensor scaled = normalize(wide, spec, in_dtype(inputs[2], wide.dtype()), {}, nullptr, "evo_norm_s0");
  const Tensor gate = sigmoid(mul(wide, along_channels(inputs[1], wide)));
  return back_to(x, scale_and_shift(mul(scaled, gate), {}, inputs[3]));
}

}  // namespace

Tensor evo_norm_b0(const Tensor& input, const Tensor& running_var, const Tensor& v, const Tensor& weight,
                   const Tensor& bias, const EvoNormB0Options& options) {
  constexpr std::string_view op = "evo_norm_b0";
  const AutocastOp cast(op);
  const Tensor x = cast.input(input);
  check_input(op, x, 3, 5);
  check_parameters(op, x, v, weight, bias);
  check_optional_per_channel(op, "running_var", running_var, x);
  check(options.eps >= 0, op, "eps: expected a value >= 0, got {}", options.eps);
  check(options.momentum >= 0 && options.momentum <= 1, op, "momentum: expected a value in [0, 1], got {}",
        options.momentum);
  const bool fixed = !options.training && running_var.defined();
  const int64_t count = x.size(1) == 0 ? 0 : x.numel() / x.size(1);
  check(fixed || count != 1, op, "input: expected more than 1 value per channel {}, got sizes {}",
        options.training ? "when training" : "without running statistics", to_string(x.sizes()));
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
  constexpr std::string_view op = "evo_norm_s0";
  const AutocastOp cast(op);
  const Tensor x = cast.input(input);
  check_input(op, x, 3, 5);
  check(num_groups >= 1, op, "num_groups: expected at least 1, got {}", num_groups);
  check_parameters(op, x, v, weight, bias);
  const NormSpec spec = checked_spec(op, x, spec_of_groups(x, num_groups, options));
  return map_norm({.op = op,
                   .function = kernels::MapFunction::gate,
                   .activation = options.activation,
                   .composed = [spec](const Tensors& in) { return composed_s0(in, spec); }},
                  {x, v, weight, bias},
                  [&](const Tensor& in_order) -> Tensors { return {map_stats(op, in_order, spec)}; });
}

}  // namespace norma

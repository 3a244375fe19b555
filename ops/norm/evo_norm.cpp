#include "ops/norm/evo_norm.h"

#include "core/autocast.h"
#include "ops/norm/composing.h"
#include "ops/norm/implementation.h"
#include "ops/pointwise/pointwise.h"

namespace norma {

using namespace norm_kernels;

namespace {

/// v must be there; weight and bias may be.
void check_parameters(std::string_view op, const Tensor& x, const Tensor& v, const Tensor& weight, const Tensor& bias) {
  check_per_channel(op, "v", v, x);
  check_optional_per_channel(op, "weight", weight, x);
  check_optional_per_channel(op, "bias", bias, x);
}

}  // namespace

Tensor evo_norm_b0(const Tensor& given, const Tensor& running_var, const Tensor& v, const Tensor& weight,
                   const Tensor& bias, const EvoNormB0Options& options) {
  constexpr std::string_view op = "evo_norm_b0";
  const AutocastOp cast(op);
  const Tensor x = cast.input(given);
  check_input(op, x, 3, 5);
  check_parameters(op, x, v, weight, bias);
  check_optional_per_channel(op, "running_var", running_var, x);
  check(options.eps >= 0, op, "eps: expected a value >= 0, got {}", options.eps);
  check(options.momentum >= 0 && options.momentum <= 1, op, "momentum: expected a value in [0, 1], got {}",
        options.momentum);
  const Tensor wide = enter(x);
  const NormSpec instance{.reduce = axes_from(2, x.rank()), .statistics = options.statistics};
  Tensor batch_var;
  if (options.training || !running_var.defined()) {
    const int64_t count = x.size(1) == 0 ? 0 : x.numel() / x.size(1);
    check(count != 1, op, "input: expected more than 1 value per channel when training, got sizes {}",
          to_string(x.sizes()));
    NormSpec batch = instance;
    batch.reduce.insert(0, 0);
    batch_var = variance(op, wide, batch);
    if (options.training && running_var.defined() && count > 0) {
      const auto n = static_cast<double>(count);
      update_running(running_var, batch_var.detach(), options.momentum, n / (n - 1));
    }
  } else {
    batch_var = along_channels(running_var, wide);
  }
  const Tensor left = sqrt(add(batch_var, options.eps));
  const Tensor right = add(mul(wide, along_channels(v, wide)), sqrt(add(variance(op, wide, instance), options.eps)));
  return leave(scale_and_shift(div(wide, maximum(right, left)), weight, bias), x);
}

Tensor evo_norm_s0(const Tensor& given, int64_t num_groups, const Tensor& v, const Tensor& weight, const Tensor& bias,
                   const EvoNormS0Options& options) {
  constexpr std::string_view op = "evo_norm_s0";
  const AutocastOp cast(op);
  const Tensor x = cast.input(given);
  check_input(op, x, 3, 5);
  check(num_groups >= 1, op, "num_groups: expected at least 1, got {}", num_groups);
  check_parameters(op, x, v, weight, bias);
  const NormSpec spec{.reduce = axes_from(1, x.rank()),
                      .affine = {1},
                      .groups = num_groups,
                      .statistics = options.statistics,
                      .eps = options.eps,
                      .centring = Centring::deviation};
  const Tensor wide = enter(x);
  const Tensor scaled = normalize(wide, spec, in_dtype(weight, wide.dtype()), {}, nullptr, op);
  const Tensor gate = sigmoid(mul(wide, along_channels(v, wide)));
  return leave(scale_and_shift(mul(scaled, gate), {}, bias), x);
}

}  // namespace norma

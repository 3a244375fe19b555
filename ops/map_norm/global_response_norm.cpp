#include "ops/map_norm/norms.h"

#include "core/autocast.h"
#include "core/factory.h"
#include "ops/map_norm/map_norm.h"
#include "ops/norm/checks.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"

#include <algorithm>
#include <cmath>

namespace norma {

using namespace norm_detail;

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
  constexpr std::string_view op = "global_response_norm";
  const AutocastOp cast(op);
  const Tensor x = cast.input(input);
  check_input(op, x, 3, 5);
  check_optional_per_channel(op, "weight", weight, x);
  check_optional_per_channel(op, "bias", bias, x);
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

}  // namespace norma

#include "ops/map_norm/norms.h"

#include "core/autocast.h"
#include "ops/map_norm/map_norm.h"
#include "ops/norm/checks.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"

namespace norma {

using namespace norm_detail;

namespace {

NormSpec filter_response_spec(const Tensor& x, double eps) {
  return {.reduce = axes_from(2, x.rank()), .affine = {1}, .eps = eps, .centring = Centring::none};
}

/// inputs: x, weight, bias, tau
Tensor composed(const Tensors& inputs, double eps) {
  const Tensor& x = inputs[0];
  const Tensor wide = in_compute_dtype(x);
  const Tensor y = normalize(wide, filter_response_spec(x, eps), in_dtype(inputs[1], wide.dtype()),
                             in_dtype(inputs[2], wide.dtype()));
  return back_to(x, maximum(y, along_channels(inputs[3], y)));
}

}  // namespace

Tensor filter_response_norm(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& tau,
                            const FilterResponseNormOptions& options) {
  constexpr std::string_view op = "filter_response_norm";
  const AutocastOp cast(op);
  const Tensor x = cast.input(input);
  check_input(op, x, 3, 5);
  check_optional_per_channel(op, "weight", weight, x);
  check_optional_per_channel(op, "bias", bias, x);
  check_optional_per_channel(op, "tau", tau, x);
  check(options.eps >= 0, op, "eps: expected a value >= 0, got {}", options.eps);
  const NormSpec spec = filter_response_spec(x, options.eps);
  if (!tau.defined()) {
    return norm_act(x, spec, weight, bias, {.activation = options.activation}, nullptr, op);
  }
  return map_norm({.op = op,
                   .function = kernels::MapFunction::threshold,
                   .activation = options.activation,
                   .composed = [eps = options.eps](const Tensors& in) { return composed(in, eps); }},
                  {x, weight, bias, tau},
                  [&](const Tensor& in_order) -> Tensors { return {map_stats(op, in_order, spec)}; });
}

}  // namespace norma

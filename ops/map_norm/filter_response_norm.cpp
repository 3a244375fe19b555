#include "ops/map_norm/filter_response_norm.h"

#include "core/autocast.h"
#include "core/op_profile.h"
#include "ops/map_norm/differentiable_parts.h"
#include "ops/map_norm/map_norm.h"
#include "ops/norm/node.h"
#include "ops/pointwise/pointwise.h"

namespace norma {

using namespace norm_kernels;

namespace {

NormSpec filter_response_spec(const Tensor& x, double eps) {
  return {.reduce = axes_from(2, x.rank()), .affine = {1}, .eps = eps, .centring = Centring::none};
}

/// inputs: x, weight, bias, tau
Tensor composed_filter_response(const Tensors& inputs, double eps) {
  const Tensor& x = inputs[0];
  const Tensor wide = enter(x);
  const Tensor y = normalize(wide, filter_response_spec(x, eps), in_dtype(inputs[1], wide.dtype()),
                             in_dtype(inputs[2], wide.dtype()));
  return leave(maximum(y, along_channels(inputs[3], y)), x);
}

/// rstd, weight, bias, tau
MapRows filter_response_numbers(const MapLayout& layout, const Tensors& inputs, const Tensor& rows) {
  return {row_of(rows, 2), parameter_row(layout, inputs[1], 1), parameter_row(layout, inputs[2], 0),
          parameter_row(layout, inputs[3], 0)};
}

Tensors filter_response_backward(const Tensor& dy, const Tensors& inputs, const Tensor& rows, bool with_relu) {
  const MapCall call{.function = MapFunction::threshold, .relu = with_relu};
  const MapLayout layout(inputs[0]);
  const DType dtype = inputs[0].dtype();
  const Tensor x = layout.in_order(inputs[0], dtype);
  const Tensor dz = layout.in_order(dy, dtype);
  const MapRows numbers = filter_response_numbers(layout, inputs, rows);
  const MapRows sums = map_sums(layout, dz, x, call, numbers);
  // With g = dz * weight where z > tau, and xhat = x * rstd: dx = rstd * (g - xhat * mean(g * xhat))
  const Doubles& rstd = numbers[0];
  const Doubles& weight = numbers[1];
  const Doubles zero(rstd.size(), 0.0);
  Doubles by = zero;
  for (size_t map = 0; map < by.size(); ++map) {
    by[map] = -rstd[map] * weight[map] * sums[1][map] / layout.pixels();
  }
  const Tensor dx = map_gradient(layout, dz, x, call, numbers, {zero, zero, rstd, by, zero});
  return {layout.in_place(dx), gradient_of(inputs[1], over_maps(layout, sums[1])),
          gradient_of(inputs[2], over_maps(layout, sums[0])), gradient_of(inputs[3], over_maps(layout, sums[2]))};
}

}  // namespace

Tensor filter_response_norm(const Tensor& given, const Tensor& weight, const Tensor& bias, const Tensor& tau,
                            const FilterResponseNormOptions& options) {
  constexpr std::string_view op = "filter_response_norm";
  const AutocastOp cast(op);
  const Tensor x = cast.input(given);
  check_input(op, x, 3, 5);
  check_optional_per_channel(op, "weight", weight, x);
  check_optional_per_channel(op, "bias", bias, x);
  check_optional_per_channel(op, "tau", tau, x);
  check(options.eps >= 0, op, "eps: expected a value >= 0, got {}", options.eps);
  const NormSpec spec = filter_response_spec(x, options.eps);
  if (!tau.defined()) {
    return norm_act(x, spec, weight, bias, {.activation = options.activation}, nullptr, op);
  }
  const Tensors inputs{x, weight, bias, tau};
  if (x.numel() == 0) {
    return activated(composed_filter_response(inputs, options.eps), options.activation);
  }
  const bool with_relu = options.activation == Activation::relu;
  const MapLayout layout(x);
  const OpScope scope([&] { return OpWork{.op = std::string(op), .bytes = bytes_of(x, x)}; });
  const Tensor in_order = layout.in_order(x, x.dtype());
  const Tensor rows = statistics_rows_of(op, in_order, spec);
  const Tensor y =
      map_forward(layout, in_order, {MapFunction::threshold, with_relu}, filter_response_numbers(layout, inputs, rows));
  return record_own({.op = op,
                     .activation = options.activation,
                     .inputs = inputs,
                     .statistics = {rows},
                     .y = layout.in_place(y),
                     .composed = [eps = options.eps](const Tensors& in) { return composed_filter_response(in, eps); },
                     .backward =
                         [with_relu](const Tensor& dy, const Tensors& in, const Tensors& statistics) {
                           return filter_response_backward(dy, in, statistics[0], with_relu);
                         }});
}

}  // namespace norma

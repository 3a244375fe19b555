#include "ops/map_norm/dynamic_tanh.h"

#include "core/autocast.h"
#include "core/op_profile.h"
#include "ops/map_norm/differentiable_parts.h"
#include "ops/map_norm/map_norm.h"
#include "ops/norm/node.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <utility>

namespace norma {

using namespace norm_kernels;

namespace {

/// inputs: x, alpha, weight, bias
Tensor composed(const Tensors& inputs, int64_t axis) {
  const Tensor& x = inputs[0];
  const DType dtype = compute_dtype(x.dtype());
  Sizes along = Sizes::filled(x.rank(), 1);
  Tensor y = tanh(mul(enter(x), reshape(to(inputs[1], dtype), along)));
  along[axis] = x.size(axis);
  if (inputs[2].defined()) {
    y = mul(y, reshape(to(inputs[2], dtype), along));
  }
  if (inputs[3].defined()) {
    y = add(y, reshape(to(inputs[3], dtype), along));
  }
  return leave(y, x);
}

/// alpha, weight, bias
MapRows numbers(const MapLayout& layout, const Tensors& inputs) {
  return {Doubles(static_cast<size_t>(layout.maps()), numbers_from(inputs[1], 1, 0)[0]),
          parameter_row(layout, inputs[2], 1), parameter_row(layout, inputs[3], 0)};
}

Tensors backward(const Tensor& dy, const Tensors& inputs, int64_t axis, bool with_relu) {
  const MapCall call{.function = MapFunction::tanh, .relu = with_relu};
  const MapLayout layout(inputs[0], axis);
  const DType dtype = inputs[0].dtype();
  const Tensor x = layout.in_order(inputs[0], dtype);
  const Tensor dz = layout.in_order(dy, dtype);
  const MapRows rows = numbers(layout, inputs);
  const MapRows sums = map_sums(layout, dz, x, call, rows);
  double dalpha = 0;
  for (size_t map = 0; map < sums[2].size(); ++map) {
    dalpha += rows[1][map] * sums[2][map];
  }
  const Tensor dx = map_gradient(layout, dz, x, call, rows, {});
  return {layout.in_place(dx), gradient_of(inputs[1], {dalpha}), gradient_of(inputs[2], over_maps(layout, sums[1])),
          gradient_of(inputs[3], over_maps(layout, sums[0]))};
}

}  // namespace

Tensor dynamic_tanh(const Tensor& given, const Tensor& alpha, const Tensor& weight, const Tensor& bias,
                    const DynamicTanhOptions& options) {
  constexpr std::string_view op = "dynamic_tanh";
  const AutocastOp cast(op);
  const Tensor x = cast.input(given);
  check_input(op, x, 1, kMaxRank);
  check_defined(op, "alpha", alpha);
  check(alpha.numel() == 1 && alpha.rank() <= 1, op, "alpha: expected sizes [1] or [], got {}",
        to_string(alpha.sizes()));
  check_parameter(op, "alpha", alpha, x);
  const int64_t axis = normalize_axis(op, options.axis, x.rank());
  for (const auto& [argument, parameter] : {std::pair{"weight", weight}, std::pair{"bias", bias}}) {
    if (parameter.defined()) {
      check_sizes(op, argument, parameter, {x.size(axis)});
      check_parameter(op, argument, parameter, x);
    }
  }
  const Tensors inputs{x, alpha, weight, bias};
  if (x.numel() == 0) {
    return activated(composed(inputs, axis), options.activation);
  }
  const bool with_relu = options.activation == Activation::relu;
  const MapLayout layout(x, axis);
  const OpScope scope([&] { return OpWork{.op = std::string(op), .bytes = bytes_of(x, x)}; });
  const Tensor y =
      map_forward(layout, layout.in_order(x, x.dtype()), {MapFunction::tanh, with_relu}, numbers(layout, inputs));
  return record_own({.op = op,
                     .activation = options.activation,
                     .inputs = inputs,
                     .statistics = {},
                     .y = layout.in_place(y),
                     .composed = [axis](const Tensors& in) { return composed(in, axis); },
                     .backward = [axis, with_relu](const Tensor& dy, const Tensors& in,
                                                   const Tensors&) { return backward(dy, in, axis, with_relu); }});
}

}  // namespace norma

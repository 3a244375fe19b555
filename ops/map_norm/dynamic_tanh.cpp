#include "ops/map_norm/norms.h"

#include "core/autocast.h"
#include "core/copy.h"
#include "ops/map_norm/map_norm.h"
#include "ops/norm/checks.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <utility>

namespace norma {

using namespace norm_detail;

namespace {

/// inputs: x, alpha, weight, bias
Tensor composed(const Tensors& inputs, int64_t axis) {
  const Tensor& x = inputs[0];
  const DType dtype = compute_dtype(x.dtype());
  Sizes along = Sizes::filled(x.rank(), 1);
  Tensor y = tanh(mul(in_compute_dtype(x), reshape(to(inputs[1], dtype), along)));
  along[axis] = x.size(axis);
  if (inputs[2].defined()) {
    y = mul(y, reshape(to(inputs[2], dtype), along));
  }
  if (inputs[3].defined()) {
    y = add(y, reshape(to(inputs[3], dtype), along));
  }
  return back_to(x, y);
}

}  // namespace

Tensor dynamic_tanh(const Tensor& input, const Tensor& alpha, const Tensor& weight, const Tensor& bias,
                    const DynamicTanhOptions& options) {
  constexpr std::string_view op = "dynamic_tanh";
  const AutocastOp cast(op);
  const Tensor x = cast.input(input);
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
  return map_norm({.op = op,
                   .function = kernels::MapFunction::tanh,
                   .activation = options.activation,
                   .axis = axis,
                   .composed = [axis](const Tensors& in) { return composed(in, axis); }},
                  {x, alpha, weight, bias});
}

}  // namespace norma

#include "ops/map_norm/norms.h"

#include "core/autocast.h"
#include "core/copy.h"
#include "ops/map_norm/map_norm.h"
#include "ops/norm/checks.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <utility>
#include <vector>

namespace norma {

using namespace norm_detail;

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

Tensor composed(const BoundedNorm& norm, const Tensors& inputs, int64_t axis) {
  const Tensor& x = inputs[0];
  Sizes along = Sizes::filled(x.rank(), 1);
  const auto parameter = [&](size_t i) { return reshape(to(inputs[i], compute_dtype(x.dtype())), along); };
  const size_t scalars = norm.scalars.size();
  Tensor z = mul(in_compute_dtype(x), parameter(1));
  if (scalars > 1) {
    z = add(z, parameter(2));
  }
  Tensor y = norm.bounded(z);
  along[axis] = x.size(axis);
  if (inputs[scalars + 1].defined()) {
    y = mul(y, parameter(scalars + 1));
  }
  if (inputs[scalars + 2].defined()) {
    y = add(y, parameter(scalars + 2));
  }
  return back_to(x, y);
}

Tensor apply(const BoundedNorm& norm, const Tensor& input, const Tensor& weight, const Tensor& bias,
             const BoundedNormOptions& options) {
  const std::string_view op = norm.op;
  const AutocastOp cast(op);
  const Tensor x = cast.input(input);
  check_input(op, x, 1, kMaxRank);
  Tensors inputs{x};
  for (const auto& [name, scalar] : norm.scalars) {
    check_defined(op, name, scalar);
    check(scalar.numel() == 1 && scalar.rank() <= 1, op, "{}: expected sizes [1] or [], got {}", name,
          to_string(scalar.sizes()));
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
                   .composed = [norm, axis](const Tensors& in) { return composed(norm, in, axis); }},
                  inputs);
}

}  // namespace

Tensor dynamic_tanh(const Tensor& x, const Tensor& alpha, const Tensor& weight, const Tensor& bias,
                    const BoundedNormOptions& options) {
  return apply({.op = "dynamic_tanh",
                .function = kernels::MapFunction::tanh,
                .scalars = {{"alpha", alpha}},
                .bounded = [](const Tensor& z) { return tanh(z); }},
               x, weight, bias, options);
}

Tensor dynamic_erf(const Tensor& x, const Tensor& alpha, const Tensor& shift, const Tensor& weight, const Tensor& bias,
                   const BoundedNormOptions& options) {
  return apply({.op = "dynamic_erf",
                .function = kernels::MapFunction::erf,
                .scalars = {{"alpha", alpha}, {"shift", shift}},
                .bounded = [](const Tensor& z) { return erf(z); }},
               x, weight, bias, options);
}

}  // namespace norma

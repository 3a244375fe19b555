#include "ops/norm/dynamic_tanh.h"

#include "core/autocast.h"
#include "ops/norm/composing.h"
#include "ops/norm/implementation.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

namespace norma {

using namespace norm_kernels;

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
  const DType dtype = compute_dtype(x.dtype());
  Sizes along = Sizes::filled(x.rank(), 1);
  Tensor y = tanh(mul(enter(x), reshape(to(alpha, dtype), along)));
  along[axis] = x.size(axis);
  const auto checked = [&](std::string_view argument, const Tensor& parameter) {
    check_sizes(op, argument, parameter, {x.size(axis)});
    check_parameter(op, argument, parameter, x);
    return reshape(to(parameter, dtype), along);
  };
  if (weight.defined()) {
    y = mul(y, checked("weight", weight));
  }
  if (bias.defined()) {
    y = add(y, checked("bias", bias));
  }
  return leave(y, x);
}

}  // namespace norma

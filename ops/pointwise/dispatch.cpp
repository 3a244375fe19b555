#include "ops/pointwise/dispatch.h"

#include "base/lists.h"
#include "core/factory.h"
#include "core/strided_loop.h"
#include "ops/reduce/reduce.h"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace norma::pointwise {

namespace {

enum class Kind { boolean, integer, floating };

Kind kind_of(DType dtype) {
  if (is_floating(dtype)) {
    return Kind::floating;
  }
  return dtype == DType::boolean ? Kind::boolean : Kind::integer;
}

std::string_view name_of_backward(Unary f) {
  static constexpr std::string_view kNames[] = {"neg_backward",     "exp_backward",  "log_backward",  "sqrt_backward",
                                                "rsqrt_backward",   "pow_backward",  "abs_backward",  "tanh_backward",
                                                "sigmoid_backward", "erf_backward",  "relu_backward", "silu_backward",
                                                "gelu_backward",    "gelu_backward", "clamp_backward"};
  static_assert(std::size(kNames) == static_cast<size_t>(Unary::clamp) + 1, "a name for each, in the order of Unary");
  return kNames[static_cast<size_t>(f)];
}

/// Throws Error unless the dtype is floating, or where there are integers int64 or int32.
void check_dtype_is(std::string_view op, DType dtype, bool integers) {
  const auto nothing = [](auto) {};
  integers ? dispatch_numeric(op, dtype, nothing) : dispatch_any_floating(op, dtype, nothing);
}

}  // namespace

Operand operand_of(const Tensor& x, const Sizes& sizes) {
  return {x.device_pointer(), broadcast_strides(x.sizes(), x.strides(), sizes)};
}

DType result_dtype(const Tensor& a, const Tensor& b) {
  if (a.rank() == 0 && b.rank() != 0 && kind_of(a.dtype()) <= kind_of(b.dtype())) {
    return b.dtype();
  }
  if (b.rank() == 0 && a.rank() != 0 && kind_of(b.dtype()) <= kind_of(a.dtype())) {
    return a.dtype();
  }
  return promote(a.dtype(), b.dtype());
}

Tensor number_operand(std::string_view op, const Tensor& x, double b) {
  if (!is_floating(x.dtype())) {
    const double limit = x.dtype() == DType::int32 ? 0x1p31 : 0x1p63;
    check(std::floor(b) == b && b >= -limit && b < limit, op, "b: expected a whole number that fits into {}, got {}",
          to_string(x.dtype()), b);
  }
  return full({}, b, {.dtype = x.dtype(), .device = x.device()});
}

void check_dtype_of(std::string_view op, Unary f, DType dtype) {
  check_dtype_is(op, dtype, /* integers= */ f == Unary::neg || f == Unary::abs || f == Unary::clamp);
}

void check_dtype_of(std::string_view op, Binary f, DType dtype) {
  check_dtype_is(op, dtype, /* integers= */ f != Binary::div && f != Binary::pow);
}

Tensor unary(const Op& op, Unary f, const Tensor& x, const Scalars& scalars) {
  check_dtype_of(op, f, x.dtype());
  Tensor y = empty_for(x.sizes(), x.dtype(), x);
  unary_into(op, f, x, y, scalars);
  return y;
}

void unary_into(const Op& op, Unary f, const Tensor& x, const Tensor& y, const Scalars& scalars) {
  const Sizes& sizes = x.sizes();
  op.run(kernels::pointwise_kernels, x, y)
      ->unary(f, x.dtype(), sizes, operand_of(y, sizes), operand_of(x, sizes), scalars);
}

namespace {

Tensor run_backward(const Op& op, Unary f, const Tensor& saved, const Tensor& dy, const Scalars& scalars) {
  const Sizes& sizes = saved.sizes();
  Tensor dx = empty_for(sizes, dy.dtype(), saved);
  op.run(kernels::pointwise_kernels, saved, dy, dx)
      ->unary_backward(f, dy.dtype(), sizes, operand_of(dx, sizes), operand_of(saved, sizes), operand_of(dy, sizes),
                       scalars);
  return dx;
}

}  // namespace

Tensor unary_backward(Unary f, const Tensor& saved, const Tensor& dy, const Scalars& scalars) {
  return run_backward(Op(name_of_backward(f)), f, saved, dy, scalars);
}

Tensor straight_backward(Unary f, const Tensor& saved, const Tensor& dy, const Scalars& scalars) {
  const Op op(name_of_backward(f));
  return op.record({dy}, run_backward(op, f, saved, dy, scalars), {saved},
                   [f, scalars](const Tensor& gradient, const BackwardContext& c) -> Tensors {
                     return {straight_backward(f, c.saved(0), gradient, scalars)};
                   });
}

Tensor binary(const Op& op, Binary f, const Tensor& a, const Tensor& b, TensorList uncast) {
  Tensor y = empty_for(broadcast_sizes(op, a.sizes(), b.sizes()), a.dtype(), uncast);
  binary_into(op, f, a, b, y);
  return y;
}

void binary_into(const Op& op, Binary f, const Tensor& a, const Tensor& b, const Tensor& y) {
  const Sizes& sizes = y.sizes();
  op.run(kernels::pointwise_kernels, y, a, b)
      ->binary(f, y.dtype(), sizes, operand_of(y, sizes), operand_of(a, sizes), operand_of(b, sizes));
}

Tensor unbroadcast(const Tensor& gradient, const Sizes& sizes) {
  return gradient.sizes() == sizes ? gradient : sum_to_size(gradient, sizes);
}

Strides result_strides(const Sizes& sizes, TensorList operands) {
  const auto all = [&](auto&& property) { return std::all_of(operands.begin(), operands.end(), property); };
  if (all([&](const Tensor& x) { return x.sizes() == sizes; })) {
    const Tensor& first = operands.front();
    if (all([](const Tensor& x) { return x.is_contiguous(); })) {
      return contiguous_strides(sizes);
    }
    if (all([](const Tensor& x) { return x.is_contiguous(MemoryFormat::channels_last); })) {
      return channels_last_strides(sizes);
    }
    if (is_non_overlapping_and_dense(sizes, first.strides()) &&
        all([&](const Tensor& x) { return x.strides() == first.strides(); })) {
      return first.strides();
    }
  }
  return ordered_strides(
      sizes, mapped(operands, [&](const Tensor& x) { return broadcast_strides(x.sizes(), x.strides(), sizes); }));
}

Tensor empty_for(const Sizes& sizes, DType dtype, TensorList operands) {
  return empty_strided(sizes, result_strides(sizes, operands), {.dtype = dtype, .device = operands.front().device()});
}

}  // namespace norma::pointwise

#include "ops/pointwise/dispatch.h"

#include "core/factory.h"
#include "core/op_profile.h"
#include "core/strided_loop.h"
#include "ops/reduce/reduce.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace norma::pointwise {

namespace {

enum class Kind { boolean, integer, floating };

Kind kind_of(DType dtype) {
  if (is_floating(dtype)) {
    return Kind::floating;
  }
  return dtype == DType::boolean ? Kind::boolean : Kind::integer;
}

std::string_view name_of(Unary f) {
  static constexpr std::string_view kNames[] = {"neg",     "exp", "log",  "sqrt", "rsqrt", "pow",       "abs",  "tanh",
                                                "sigmoid", "erf", "relu", "silu", "gelu",  "gelu_tanh", "clamp"};
  return kNames[static_cast<size_t>(f)];
}

std::string_view name_of(Binary f) {
  static constexpr std::string_view kNames[] = {"add", "sub", "mul", "div", "maximum", "pow"};
  return kNames[static_cast<size_t>(f)];
}

/// Throws Error unless the function exists for the dtype.
void check_unary_dtype(std::string_view op, Unary f, DType dtype) {
  const auto nothing = [](auto) {};
  if (f == Unary::neg || f == Unary::abs || f == Unary::clamp) {
    dispatch_numeric(op, dtype, nothing);
  } else {
    dispatch_any_floating(op, dtype, nothing);
  }
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

void check_binary_dtype(std::string_view op, Binary f, DType dtype) {
  const auto nothing = [](auto) {};
  if (f == Binary::div || f == Binary::pow) {
    dispatch_any_floating(op, dtype, nothing);
  } else {
    dispatch_numeric(op, dtype, nothing);
  }
}

Tensor unary(std::string_view op, Unary f, const Tensor& x, const Scalars& scalars) {
  check_defined(op, "x", x);
  check_unary_dtype(op, f, x.dtype());
  Tensor y = empty_for(x.sizes(), x.dtype(), {x});
  unary_into(f, x, y, scalars);
  return y;
}

void unary_into(Unary f, const Tensor& x, const Tensor& y, const Scalars& scalars) {
  const Sizes& sizes = x.sizes();
  const OpScope scope([&] { return OpWork{.op = std::string(name_of(f)), .bytes = bytes_of(x, y)}; });
  kernels::pointwise_kernels.at(name_of(f), x.device())
      ->unary(f, x.dtype(), sizes, operand_of(y, sizes), operand_of(x, sizes), scalars);
}

Tensor unary_backward(Unary f, const Tensor& saved, const Tensor& dy, const Scalars& scalars) {
  const Sizes& sizes = saved.sizes();
  Tensor dx = empty_for(sizes, dy.dtype(), {saved});
  const OpScope scope(
      [&] { return OpWork{.op = fmt::format("{}_backward", name_of(f)), .bytes = bytes_of(saved, dy, dx)}; });
  kernels::pointwise_kernels.at(name_of(f), dy.device())
      ->unary_backward(f, dy.dtype(), sizes, operand_of(dx, sizes), operand_of(saved, sizes), operand_of(dy, sizes),
                       scalars);
  return dx;
}

Tensor straight_backward(std::string_view op, Unary f, const Tensor& saved, const Tensor& dy, const Scalars& scalars) {
  return record(op, {dy}, unary_backward(f, saved, dy, scalars), {saved},
                [name = std::string(op), f, scalars](const Tensor& gradient, const BackwardContext& c) -> Tensors {
                  return {straight_backward(name, f, c.saved(0), gradient, scalars)};
                });
}

Tensor binary(std::string_view op, Binary f, const Tensor& a, const Tensor& b, const Tensors& uncast) {
  Tensor y = empty_for(broadcast_sizes(op, a.sizes(), b.sizes()), a.dtype(), uncast);
  binary_into(f, a, b, y);
  return y;
}

void binary_into(Binary f, const Tensor& a, const Tensor& b, const Tensor& y) {
  const Sizes& sizes = y.sizes();
  const OpScope scope([&] { return OpWork{.op = std::string(name_of(f)), .bytes = bytes_of(a, b, y)}; });
  kernels::pointwise_kernels.at(name_of(f), y.device())
      ->binary(f, y.dtype(), sizes, operand_of(y, sizes), operand_of(a, sizes), operand_of(b, sizes));
}

Tensor unbroadcast(const Tensor& gradient, const Sizes& sizes) {
  return gradient.sizes() == sizes ? gradient : sum_to_size(gradient, sizes);
}

Strides result_strides(const Sizes& sizes, const Tensors& operands) {
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
  std::vector<Strides> strides;
  for (const Tensor& x : operands) {
    strides.push_back(broadcast_strides(x.sizes(), x.strides(), sizes));
  }
  return ordered_strides(sizes, strides);
}

Tensor empty_for(const Sizes& sizes, DType dtype, const Tensors& operands) {
  return empty_strided(sizes, result_strides(sizes, operands), {.dtype = dtype, .device = operands.front().device()});
}

}  // namespace norma::pointwise

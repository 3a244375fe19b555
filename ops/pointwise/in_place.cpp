#include "ops/pointwise/dispatch.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"

namespace norma {

using pointwise::Binary;
using pointwise::Scalars;
using pointwise::straight_backward;
using pointwise::Unary;
using pointwise::unbroadcast;

namespace {

/// Checks x and b, and returns b in x's dtype and in memory of its own.
Tensor second_operand(const Op& op, Binary f, const Tensor& x, const Tensor& b) {
  check_defined(op, "x", x);
  check_device(op, "b", b, x.device());
  pointwise::check_dtype_of(op, f, x.dtype());
  check(is_floating(x.dtype()) || !is_floating(b.dtype()), op, "b: expected a dtype that {} can hold, got {}",
        to_string(x.dtype()), to_string(b.dtype()));
  check(broadcast_sizes(op, x.sizes(), b.sizes()) == x.sizes(), op, "b: expected sizes that broadcast to {}, got {}",
        x.sizes(), b.sizes());
  check_in_place(op, x, {b});
  // If b lay in the memory that changes, its elements would be read after they were written.
  return b.storage() == x.storage() ? clone(to(b, x.dtype())) : to(b, x.dtype());
}

/// Checks an x that becomes f(x), or f(x, b) for a number b.
template <class Function>
void check_alone(const Op& op, Function f, const Tensor& x) {
  check_defined(op, "x", x);
  pointwise::check_dtype_of(op, f, x.dtype());
  check_in_place(op, x);
}

/// x = f(x), recorded. `backward` finds the new x as saved(0) where `saves` says so.
template <class F>
Tensor& change(const Op& op, Unary f, Tensor& x, bool saves, F&& backward) {
  check_alone(op, f, x);
  pointwise::unary_into(op, f, x, x);
  op.record_in_place(x, {}, {saves ? x : Tensor()}, std::forward<F>(backward));
  return x;
}

/// x = f(x, b) for a number b; not recorded.
void with_number(const Op& op, Binary f, const Tensor& x, double b) {
  check_alone(op, f, x);
  pointwise::binary_into(op, f, x, pointwise::number_operand(op, x, b), x);
}

}  // namespace

Tensor& add_(Tensor& x, const Tensor& other) {
  const Op op("add_");
  const Tensor b = second_operand(op, Binary::add, x, other);
  pointwise::binary_into(op, Binary::add, x, b, x);
  op.record_in_place(x, {b}, {}, [b_sizes = b.sizes()](const Tensor& dy, const BackwardContext& c) -> Tensors {
    return {dy, c.needs_grad(1) ? unbroadcast(dy, b_sizes) : Tensor()};
  });
  return x;
}

Tensor& sub_(Tensor& x, const Tensor& other) {
  const Op op("sub_");
  const Tensor b = second_operand(op, Binary::sub, x, other);
  pointwise::binary_into(op, Binary::sub, x, b, x);
  op.record_in_place(x, {b}, {}, [b_sizes = b.sizes()](const Tensor& dy, const BackwardContext& c) -> Tensors {
    return {dy, c.needs_grad(1) ? neg(unbroadcast(dy, b_sizes)) : Tensor()};
  });
  return x;
}

Tensor& mul_(Tensor& x, const Tensor& other) {
  const Op op("mul_");
  const Tensor b = second_operand(op, Binary::mul, x, other);
  // b's gradient needs x as it was; clone() keeps its place on the tape for second derivatives.
  const Tensor before = will_record({b}) ? clone(x) : Tensor();
  const Tensor factor = x.requires_grad() ? b : Tensor();
  pointwise::binary_into(op, Binary::mul, x, b, x);
  op.record_in_place(x, {b}, {before, factor},
                     [b_sizes = b.sizes()](const Tensor& dy, const BackwardContext& c) -> Tensors {
                       return {c.needs_grad(0) ? mul(dy, c.saved(1)) : Tensor(),
                               c.needs_grad(1) ? unbroadcast(mul(dy, c.saved(0)), b_sizes) : Tensor()};
                     });
  return x;
}

Tensor& div_(Tensor& x, const Tensor& other) {
  const Op op("div_");
  const Tensor b = second_operand(op, Binary::div, x, other);
  const bool needs_quotient = b.requires_grad();
  pointwise::binary_into(op, Binary::div, x, b, x);
  op.record_in_place(
      x, {b}, {needs_quotient ? x : Tensor(), b},
      [b_sizes = b.sizes()](const Tensor& dy, const BackwardContext& c) -> Tensors {
        const Tensor gradient = div(dy, c.saved(1));
        return {gradient, c.needs_grad(1) ? unbroadcast(neg(mul(gradient, c.saved(0))), b_sizes) : Tensor()};
      });
  return x;
}

Tensor& add_(Tensor& x, double b) {
  const Op op("add_");
  with_number(op, Binary::add, x, b);
  op.record_in_place(x, {}, {}, [](const Tensor& dy, const BackwardContext&) -> Tensors { return {dy}; });
  return x;
}

Tensor& mul_(Tensor& x, double b) {
  const Op op("mul_");
  with_number(op, Binary::mul, x, b);
  op.record_in_place(x, {}, {}, [b](const Tensor& dy, const BackwardContext&) -> Tensors { return {mul(dy, b)}; });
  return x;
}

Tensor& relu_(Tensor& x) {
  return change(Op("relu_"), Unary::relu, x, /* saves= */ true,
                [](const Tensor& dy, const BackwardContext& c) -> Tensors {
                  return {straight_backward(Unary::relu, c.saved(0), dy)};
                });
}

Tensor& neg_(Tensor& x) {
  return change(Op("neg_"), Unary::neg, x, /* saves= */ false,
                [](const Tensor& dy, const BackwardContext&) -> Tensors { return {neg(dy)}; });
}

Tensor& exp_(Tensor& x) {
  return change(Op("exp_"), Unary::exp, x, /* saves= */ true,
                [](const Tensor& dy, const BackwardContext& c) -> Tensors { return {mul(dy, c.saved(0))}; });
}

Tensor& sqrt_(Tensor& x) {
  return change(Op("sqrt_"), Unary::sqrt, x, /* saves= */ true,
                [](const Tensor& dy, const BackwardContext& c) -> Tensors { return {div(dy, mul(c.saved(0), 2))}; });
}

Tensor& clamp_(Tensor& x, double low, double high) {
  const Op op("clamp_");
  check_alone(op, Unary::clamp, x);
  const Scalars bounds{low, high};
  // The result alone cannot tell an element on a bound from one that was beyond it.
  const Tensor before = will_record({x}) ? clone(x.detach()) : Tensor();
  pointwise::unary_into(op, Unary::clamp, x, x, bounds);
  op.record_in_place(x, {}, {before}, [bounds](const Tensor& dy, const BackwardContext& c) -> Tensors {
    return {straight_backward(Unary::clamp, c.saved(0), dy, bounds)};
  });
  return x;
}

}  // namespace norma

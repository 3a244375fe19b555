#include "core/factory.h"
#include "ops/pointwise/dispatch.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"

namespace norma {

using pointwise::Binary;
using pointwise::Comparison;
using pointwise::unbroadcast;

namespace {

/// Both operands in the dtype of the result, with the conversion on the tape.
struct Operands {
  Tensor a;
  Tensor b;
  Tensor
      uncast_a;  ///< before conversion, which may move elements of operands with gaps: these give the result's layout
  Tensor uncast_b;

  Operands(const Op& op, const Tensor& left, const Tensor& right)
      : uncast_a(op.input("a", left)), uncast_b(op.input("b", right)) {
    check_device(op, "b", right, left.device());
    const DType dtype = pointwise::result_dtype(uncast_a, uncast_b);
    a = to(uncast_a, dtype);
    b = to(uncast_b, dtype);
  }
};

/// y = f(a, b) of operands in its dtype; not recorded.
struct Result {
  Tensor a;
  Tensor b;
  Tensor y;
};

Result arithmetic(const Op& op, Binary f, const Tensor& left, const Tensor& right) {
  const Operands operands(op, left, right);
  const auto& [a, b, uncast_a, uncast_b] = operands;
  pointwise::check_dtype_of(op, f, a.dtype());
  return {a, b, pointwise::binary(op, f, a, b, {uncast_a, uncast_b})};
}

/// As above, for a number b.
Result with_number(Op& op, Binary f, const Tensor& input, double number) {
  const Tensor a = op.input("a", input);
  pointwise::check_dtype_of(op, f, a.dtype());
  op.describe({{"number", number}});
  const Tensor b = pointwise::number_operand(op, a, number);
  return {a, b, pointwise::binary(op, f, a, b, {a, b})};
}

Tensor compare(const Op& op, Comparison f, const Tensor& left, const Tensor& right) {
  const Operands operands(op, left, right);
  const auto& [a, b, uncast_a, uncast_b] = operands;
  const Sizes sizes = broadcast_sizes(op, a.sizes(), b.sizes());
  Tensor y = pointwise::empty_for(sizes, DType::boolean, {uncast_a, uncast_b});
  using pointwise::operand_of;
  op.run(kernels::pointwise_kernels, a, b, y)
      ->compare(f, a.dtype(), sizes, operand_of(y, sizes), operand_of(a, sizes), operand_of(b, sizes));
  op.note({a, b}, y);
  return y;
}

/// b, to be compared with a. Integers are compared with a float64 number: with 2.5 and not with 2.
Tensor number_beside(std::string_view op, const Tensor& a, double b) {
  check_defined(op, "a", a);
  return full({}, b, {.dtype = is_floating(a.dtype()) ? a.dtype() : DType::float64, .device = a.device()});
}

/// True where both a and b, of dtype bool, are true.
Tensor both(const Tensor& a, const Tensor& b) {
  return where(a, b, full({}, 0, {.dtype = DType::boolean, .device = a.device()}));
}

/// e >= 0
Tensor not_negative(const Tensor& e) {
  const Tensor zero = full({}, 0, {.dtype = e.dtype(), .device = e.device()});
  return where(equal(e, zero), equal(zero, zero), greater(e, zero));
}

}  // namespace

Tensor add(const Tensor& left, const Tensor& right) {
  const Op op(named<"add">);
  const auto [a, b, y] = arithmetic(op, Binary::add, left, right);
  return op.record({a, b}, y, {},
                   [a_sizes = a.sizes(), b_sizes = b.sizes()](const Tensor& dy, const BackwardContext& c) -> Tensors {
                     return {c.needs_grad(0) ? unbroadcast(dy, a_sizes) : Tensor(),
                             c.needs_grad(1) ? unbroadcast(dy, b_sizes) : Tensor()};
                   });
}

Tensor sub(const Tensor& left, const Tensor& right) {
  const Op op(named<"sub">);
  const auto [a, b, y] = arithmetic(op, Binary::sub, left, right);
  return op.record({a, b}, y, {},
                   [a_sizes = a.sizes(), b_sizes = b.sizes()](const Tensor& dy, const BackwardContext& c) -> Tensors {
                     return {c.needs_grad(0) ? unbroadcast(dy, a_sizes) : Tensor(),
                             c.needs_grad(1) ? neg(unbroadcast(dy, b_sizes)) : Tensor()};
                   });
}

Tensor mul(const Tensor& left, const Tensor& right) {
  const Op op(named<"mul">);
  const auto [a, b, y] = arithmetic(op, Binary::mul, left, right);
  // Each operand serves the gradient of the other.
  return op.record({a, b}, y, {b.requires_grad() ? a : Tensor(), a.requires_grad() ? b : Tensor()},
                   [a_sizes = a.sizes(), b_sizes = b.sizes()](const Tensor& dy, const BackwardContext& c) -> Tensors {
                     return {c.needs_grad(0) ? unbroadcast(mul(dy, c.saved(1)), a_sizes) : Tensor(),
                             c.needs_grad(1) ? unbroadcast(mul(dy, c.saved(0)), b_sizes) : Tensor()};
                   });
}

Tensor div(const Tensor& left, const Tensor& right) {
  const Op op(named<"div">);
  const auto [a, b, y] = arithmetic(op, Binary::div, left, right);
  return op.record({a, b}, y, {b.requires_grad() ? a : Tensor(), b},
                   [a_sizes = a.sizes(), b_sizes = b.sizes()](const Tensor& dy, const BackwardContext& c) -> Tensors {
                     const Tensor b_saved = c.saved(1);
                     // The second is -dy (a / b) / b: b * b could overflow.
                     return {c.needs_grad(0) ? unbroadcast(div(dy, b_saved), a_sizes) : Tensor(),
                             c.needs_grad(1)
                                 ? unbroadcast(neg(mul(dy, div(div(c.saved(0), b_saved), b_saved))), b_sizes)
                                 : Tensor()};
                   });
}

Tensor maximum(const Tensor& left, const Tensor& right) {
  const Op op(named<"maximum">);
  const auto [a, b, y] = arithmetic(op, Binary::maximum, left, right);
  return op.record({a, b}, y, {a, b},
                   [a_sizes = a.sizes(), b_sizes = b.sizes()](const Tensor& dy, const BackwardContext& c) -> Tensors {
                     const auto [u, v] = c.saved<2>();
                     const Tensor shared = where(equal(u, v), dy * 0.5, dy);
                     const Tensor zero = full({}, 0, {.dtype = dy.dtype(), .device = dy.device()});
                     return {c.needs_grad(0) ? unbroadcast(where(greater(v, u), zero, shared), a_sizes) : Tensor(),
                             c.needs_grad(1) ? unbroadcast(where(greater(u, v), zero, shared), b_sizes) : Tensor()};
                   });
}

Tensor pow(const Tensor& left, const Tensor& right) {
  const Op op(named<"pow">);
  const auto [a, b, y] = arithmetic(op, Binary::pow, left, right);
  return op.record({a, b}, y, {a, b},
                   [a_sizes = a.sizes(), b_sizes = b.sizes()](const Tensor& dy, const BackwardContext& c) -> Tensors {
                     const auto [x, e] = c.saved<2>();
                     const Tensor zero = full({}, 0, {.dtype = dy.dtype(), .device = dy.device()});
                     const Tensor one = full({}, 1, {.dtype = dy.dtype(), .device = dy.device()});
                     const Tensor at_zero = equal(x, zero);
                     Tensors gradients(2);
                     // If one factor is 0, the other must be finite. So at 0 another number replaces the infinite one,
                     // and only there, since derivatives of the rest go on.
                     if (c.needs_grad(0)) {  // e x^(e - 1), 0 for 0^0
                       const Tensor lowered = sub(where(both(at_zero, equal(e, zero)), one, e), 1);
                       Tensor slope = mul(e, pow(x, lowered));
                       if (!c.create_graph()) {  // x^-1 may leave the range; with it, d/de is not 0
                         slope = where(equal(e, zero), zero, slope);
                       }
                       gradients[0] = unbroadcast(mul(dy, slope), a_sizes);
                     }
                     if (c.needs_grad(1)) {  // x^e ln x, 0 at x = 0 unless e < 0
                       const Tensor base = where(both(at_zero, not_negative(e)), one, x);
                       gradients[1] = unbroadcast(mul(dy, mul(pow(x, e), log(base))), b_sizes);
                     }
                     return gradients;
                   });
}

Tensor add(const Tensor& input, double b) {
  Op op(named<"add">);
  const auto [a, number, y] = with_number(op, Binary::add, input, b);
  return op.record({a}, y, {}, [](const Tensor& dy, const BackwardContext&) -> Tensors { return {dy}; });
}

Tensor sub(const Tensor& input, double b) {
  Op op(named<"sub">);
  const auto [a, number, y] = with_number(op, Binary::sub, input, b);
  return op.record({a}, y, {}, [](const Tensor& dy, const BackwardContext&) -> Tensors { return {dy}; });
}

Tensor mul(const Tensor& input, double b) {
  Op op(named<"mul">);
  const auto [a, number, y] = with_number(op, Binary::mul, input, b);
  return op.record({a}, y, {}, [b](const Tensor& dy, const BackwardContext&) -> Tensors { return {mul(dy, b)}; });
}

Tensor div(const Tensor& input, double b) {
  Op op(named<"div">);
  const auto [a, number, y] = with_number(op, Binary::div, input, b);
  return op.record({a}, y, {}, [b](const Tensor& dy, const BackwardContext&) -> Tensors { return {div(dy, b)}; });
}

Tensor where(const Tensor& condition, const Tensor& left, const Tensor& right) {
  Op op(named<"where">);
  check_dtype(op, "condition", condition, DType::boolean);
  const Operands operands(op, left, right);
  const auto& [a, b, uncast_a, uncast_b] = operands;
  check_device(op, "condition", condition, a.device());
  const Sizes sizes = broadcast_sizes(op, condition.sizes(), broadcast_sizes(op, a.sizes(), b.sizes()));
  Tensor y = pointwise::empty_for(sizes, a.dtype(), {condition, uncast_a, uncast_b});
  using pointwise::operand_of;
  op.run(kernels::pointwise_kernels, condition, a, b, y)
      ->where(size_of(a.dtype()), sizes, operand_of(y, sizes), operand_of(condition, sizes), operand_of(a, sizes),
              operand_of(b, sizes));
  op.describe({{"condition", &condition}});
  return op.record({a, b}, y, {condition},
                   [a_sizes = a.sizes(), b_sizes = b.sizes()](const Tensor& dy, const BackwardContext& c) -> Tensors {
                     const Tensor zero = full({}, 0, {.dtype = dy.dtype(), .device = dy.device()});
                     return {c.needs_grad(0) ? unbroadcast(where(c.saved(0), dy, zero), a_sizes) : Tensor(),
                             c.needs_grad(1) ? unbroadcast(where(c.saved(0), zero, dy), b_sizes) : Tensor()};
                   });
}

Tensor equal(const Tensor& a, const Tensor& b) {
  return compare(Op("equal"), Comparison::equal, a, b);
}

Tensor greater(const Tensor& a, const Tensor& b) {
  return compare(Op("greater"), Comparison::greater, a, b);
}

Tensor not_equal(const Tensor& a, const Tensor& b) {
  const Tensor same = equal(a, b);
  return where(same, zeros_like(same), ones_like(same));
}

Tensor greater_equal(const Tensor& a, const Tensor& b) {
  const Tensor above = greater(a, b);
  return where(above, above, equal(a, b));
}

Tensor less(const Tensor& a, const Tensor& b) {
  return greater(b, a);
}

Tensor less_equal(const Tensor& a, const Tensor& b) {
  return greater_equal(b, a);
}

Tensor equal(const Tensor& a, double b) {
  return equal(a, number_beside("equal", a, b));
}

Tensor not_equal(const Tensor& a, double b) {
  return not_equal(a, number_beside("not_equal", a, b));
}

Tensor greater(const Tensor& a, double b) {
  return greater(a, number_beside("greater", a, b));
}

Tensor greater_equal(const Tensor& a, double b) {
  return greater_equal(a, number_beside("greater_equal", a, b));
}

Tensor less(const Tensor& a, double b) {
  return less(a, number_beside("less", a, b));
}

Tensor less_equal(const Tensor& a, double b) {
  return less_equal(a, number_beside("less_equal", a, b));
}

}  // namespace norma

#include "core/autocast.h"
#include "core/factory.h"
#include "core/op_profile.h"
#include "core/tape.h"
#include "core/trace.h"
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
  Tensors uncast;  ///< before conversion, which may move elements of operands with gaps: these give the result's layout

  Operands(std::string_view op, const Tensor& left, const Tensor& right) : uncast{left, right} {
    check_defined(op, "a", left);
    check_defined(op, "b", right);
    check_device(op, "b", right, left.device());
    const DType dtype = pointwise::result_dtype(left, right);
    a = to(left, dtype);
    b = to(right, dtype);
  }
};

Operands arithmetic_operands(std::string_view op, Binary f, const Tensor& left, const Tensor& right) {
  check_defined(op, "a", left);
  check_defined(op, "b", right);
  pointwise::check_binary_dtype(op, f, pointwise::result_dtype(left, right));
  const AutocastOp cast(op);
  return {op, cast.input(left), cast.input(right)};
}

/// f(a, b) for a number b; not recorded.
Tensor with_number(std::string_view op, Binary f, const Tensor& a, double b) {
  check_defined(op, "a", a);
  pointwise::check_binary_dtype(op, f, a.dtype());
  const Tensor number = pointwise::number_operand(op, a, b);
  return pointwise::binary(op, f, a, number, {a, number});
}

Tensor compare(std::string_view op, Comparison f, const Tensor& left, const Tensor& right) {
  const Operands operands(op, left, right);
  const Tensor& a = operands.a;
  const Tensor& b = operands.b;
  const Sizes sizes = broadcast_sizes(op, a.sizes(), b.sizes());
  Tensor y = pointwise::empty_for(sizes, DType::boolean, operands.uncast);
  using pointwise::operand_of;
  const OpScope scope([&] { return OpWork{.op = std::string(op), .bytes = bytes_of(a, b, y)}; });
  kernels::pointwise_kernels.at(op, y.device())
      ->compare(f, a.dtype(), sizes, operand_of(y, sizes), operand_of(a, sizes), operand_of(b, sizes));
  trace_op(op, {a, b}, {y});
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
  const auto [a, b, uncast] = arithmetic_operands("add", Binary::add, left, right);
  return record("add", {a, b}, pointwise::binary("add", Binary::add, a, b, uncast), {},
                [a_sizes = a.sizes(), b_sizes = b.sizes()](const Tensor& dy, const BackwardContext& c) -> Tensors {
                  return {c.needs_grad(0) ? unbroadcast(dy, a_sizes) : Tensor(),
                          c.needs_grad(1) ? unbroadcast(dy, b_sizes) : Tensor()};
                });
}

Tensor sub(const Tensor& left, const Tensor& right) {
  const auto [a, b, uncast] = arithmetic_operands("sub", Binary::sub, left, right);
  return record("sub", {a, b}, pointwise::binary("sub", Binary::sub, a, b, uncast), {},
                [a_sizes = a.sizes(), b_sizes = b.sizes()](const Tensor& dy, const BackwardContext& c) -> Tensors {
                  return {c.needs_grad(0) ? unbroadcast(dy, a_sizes) : Tensor(),
                          c.needs_grad(1) ? neg(unbroadcast(dy, b_sizes)) : Tensor()};
                });
}

Tensor mul(const Tensor& left, const Tensor& right) {
  const auto [a, b, uncast] = arithmetic_operands("mul", Binary::mul, left, right);
  // Each operand serves the gradient of the other.
  return record("mul", {a, b}, pointwise::binary("mul", Binary::mul, a, b, uncast),
                {b.requires_grad() ? a : Tensor(), a.requires_grad() ? b : Tensor()},
                [a_sizes = a.sizes(), b_sizes = b.sizes()](const Tensor& dy, const BackwardContext& c) -> Tensors {
                  return {c.needs_grad(0) ? unbroadcast(mul(dy, c.saved(1)), a_sizes) : Tensor(),
                          c.needs_grad(1) ? unbroadcast(mul(dy, c.saved(0)), b_sizes) : Tensor()};
                });
}

Tensor div(const Tensor& left, const Tensor& right) {
  const auto [a, b, uncast] = arithmetic_operands("div", Binary::div, left, right);
  return record("div", {a, b}, pointwise::binary("div", Binary::div, a, b, uncast),
                {b.requires_grad() ? a : Tensor(), b},
                [a_sizes = a.sizes(), b_sizes = b.sizes()](const Tensor& dy, const BackwardContext& c) -> Tensors {
                  const Tensor b_saved = c.saved(1);
                  Tensors gradients(2);
                  if (c.needs_grad(0)) {
                    gradients[0] = unbroadcast(div(dy, b_saved), a_sizes);
                  }
                  if (c.needs_grad(1)) {  // -dy (a / b) / b: b * b could overflow
                    gradients[1] = unbroadcast(neg(mul(dy, div(div(c.saved(0), b_saved), b_saved))), b_sizes);
                  }
                  return gradients;
                });
}

Tensor maximum(const Tensor& left, const Tensor& right) {
  const auto [a, b, uncast] = arithmetic_operands("maximum", Binary::maximum, left, right);
  return record("maximum", {a, b}, pointwise::binary("maximum", Binary::maximum, a, b, uncast), {a, b},
                [a_sizes = a.sizes(), b_sizes = b.sizes()](const Tensor& dy, const BackwardContext& c) -> Tensors {
                  const Tensor x = c.saved(0);
                  const Tensor y = c.saved(1);
                  const Tensor shared = where(equal(x, y), dy * 0.5, dy);
                  const Tensor zero = full({}, 0, {.dtype = dy.dtype(), .device = dy.device()});
                  Tensors gradients(2);
                  if (c.needs_grad(0)) {
                    gradients[0] = unbroadcast(where(greater(y, x), zero, shared), a_sizes);
                  }
                  if (c.needs_grad(1)) {
                    gradients[1] = unbroadcast(where(greater(x, y), zero, shared), b_sizes);
                  }
                  return gradients;
                });
}

Tensor pow(const Tensor& left, const Tensor& right) {
  const auto [a, b, uncast] = arithmetic_operands("pow", Binary::pow, left, right);
  return record("pow", {a, b}, pointwise::binary("pow", Binary::pow, a, b, uncast), {a, b},
                [a_sizes = a.sizes(), b_sizes = b.sizes()](const Tensor& dy, const BackwardContext& c) -> Tensors {
                  const Tensor x = c.saved(0);
                  const Tensor e = c.saved(1);
                  const Tensor zero = full({}, 0, {.dtype = dy.dtype(), .device = dy.device()});
                  const Tensor one = full({}, 1, {.dtype = dy.dtype(), .device = dy.device()});
                  const Tensor at_zero = equal(x, zero);
                  Tensors gradients(2);
                  // If one factor is 0, the other must be finite. So at 0 another number replaces the infinite one, and
                  // only there, since derivatives of the rest go on.
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
  const Tensor a = autocast_input("add", input);
  describe("add", [&] { return OpAttributes{{"number", b}}; });
  return record("add", {a}, with_number("add", Binary::add, a, b), {},
                [](const Tensor& dy, const BackwardContext&) -> Tensors { return {dy}; });
}

Tensor sub(const Tensor& input, double b) {
  const Tensor a = autocast_input("sub", input);
  describe("sub", [&] { return OpAttributes{{"number", b}}; });
  return record("sub", {a}, with_number("sub", Binary::sub, a, b), {},
                [](const Tensor& dy, const BackwardContext&) -> Tensors { return {dy}; });
}

Tensor mul(const Tensor& input, double b) {
  const Tensor a = autocast_input("mul", input);
  describe("mul", [&] { return OpAttributes{{"number", b}}; });
  return record("mul", {a}, with_number("mul", Binary::mul, a, b), {},
                [b](const Tensor& dy, const BackwardContext&) -> Tensors { return {mul(dy, b)}; });
}

Tensor div(const Tensor& input, double b) {
  const Tensor a = autocast_input("div", input);
  describe("div", [&] { return OpAttributes{{"number", b}}; });
  return record("div", {a}, with_number("div", Binary::div, a, b), {},
                [b](const Tensor& dy, const BackwardContext&) -> Tensors { return {div(dy, b)}; });
}

Tensor where(const Tensor& condition, const Tensor& left, const Tensor& right) {
  check_defined("where", "condition", condition);
  check_dtype("where", "condition", condition, DType::boolean);
  check_defined("where", "a", left);
  check_defined("where", "b", right);
  const Operands operands("where", autocast_input("where", left), autocast_input("where", right));
  const Tensor& a = operands.a;
  const Tensor& b = operands.b;
  check_device("where", "condition", condition, a.device());
  const Sizes sizes = broadcast_sizes("where", condition.sizes(), broadcast_sizes("where", a.sizes(), b.sizes()));
  Tensor y = pointwise::empty_for(sizes, a.dtype(), {condition, operands.uncast[0], operands.uncast[1]});
  using pointwise::operand_of;
  const OpScope scope([&] { return OpWork{.op = "where", .bytes = bytes_of(condition, a, b, y)}; });
  kernels::pointwise_kernels.at("where", y.device())
      ->where(size_of(a.dtype()), sizes, operand_of(y, sizes), operand_of(condition, sizes), operand_of(a, sizes),
              operand_of(b, sizes));
  describe("where", [&] { return OpAttributes{{"condition", condition}}; });
  return record("where", {a, b}, y, {condition},
                [a_sizes = a.sizes(), b_sizes = b.sizes()](const Tensor& dy, const BackwardContext& c) -> Tensors {
                  const Tensor zero = full({}, 0, {.dtype = dy.dtype(), .device = dy.device()});
                  return {c.needs_grad(0) ? unbroadcast(where(c.saved(0), dy, zero), a_sizes) : Tensor(),
                          c.needs_grad(1) ? unbroadcast(where(c.saved(0), zero, dy), b_sizes) : Tensor()};
                });
}

Tensor equal(const Tensor& a, const Tensor& b) {
  return compare("equal", Comparison::equal, a, b);
}

Tensor greater(const Tensor& a, const Tensor& b) {
  return compare("greater", Comparison::greater, a, b);
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

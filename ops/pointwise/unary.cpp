#include "core/factory.h"
#include "ops/pointwise/activation.h"
#include "ops/pointwise/dispatch.h"
#include "ops/pointwise/pointwise.h"

#include <cmath>

namespace norma {

using pointwise::Scalars;
using pointwise::straight_backward;
using pointwise::Unary;

namespace {

/// f(x), recorded with x or f(x) saved. Backward is one kernel; if it is itself recorded, it is `composed` of
/// differentiable functions.
Tensor smooth(const Op& op, Unary f, const Tensor& input, Tensor (*composed)(const Tensor& saved, const Tensor& dy)) {
  const Tensor x = op.input("x", input);
  const Tensor y = pointwise::unary(op, f, x);
  op.record({x}, y, {kernel_saves_output(f) ? y : x},
            [f, composed](const Tensor& dy, const BackwardContext& c) -> Tensors {
              return {c.create_graph() ? composed(c.saved(0), dy) : pointwise::unary_backward(f, c.saved(0), dy)};
            });
  if (!kernel_saves_output(f)) {
    remake_by(
        y, [name = std::string(op), f](const BackwardContext& c) { return pointwise::unary(Op(name), f, c.saved(0)); });
  }
  return y;
}

}  // namespace

Tensor neg(const Tensor& input) {
  const Op op(named<"neg">);
  const Tensor x = op.input("x", input);
  return op.record({x}, pointwise::unary(op, Unary::neg, x), {},
                   [](const Tensor& dy, const BackwardContext&) -> Tensors { return {neg(dy)}; });
}

Tensor exp(const Tensor& input) {
  const Op op(named<"exp">);
  const Tensor x = op.input("x", input);
  const Tensor y = pointwise::unary(op, Unary::exp, x);
  return op.record({x}, y, {y},
                   [](const Tensor& dy, const BackwardContext& c) -> Tensors { return {mul(dy, c.saved(0))}; });
}

Tensor log(const Tensor& input) {
  const Op op(named<"log">);
  const Tensor x = op.input("x", input);
  return op.record({x}, pointwise::unary(op, Unary::log, x), {x},
                   [](const Tensor& dy, const BackwardContext& c) -> Tensors { return {div(dy, c.saved(0))}; });
}

Tensor sqrt(const Tensor& x) {
  return smooth(Op(named<"sqrt">), Unary::sqrt, x, [](const Tensor& y, const Tensor& dy) { return dy / (y + y); });
}

Tensor rsqrt(const Tensor& x) {
  return smooth(Op(named<"rsqrt">), Unary::rsqrt, x,
                [](const Tensor& y, const Tensor& dy) { return dy * -0.5 * (y * y * y); });
}

Tensor pow(const Tensor& input, double exponent) {
  Op op(named<"pow">);
  const Tensor x = op.input("x", input);
  op.describe({{"number", exponent}});
  return op.record({x}, pointwise::unary(op, Unary::pow, x, {.first = exponent}), {x},
                   [exponent](const Tensor& dy, const BackwardContext& c) -> Tensors {
                     if (exponent == 0) {
                       return {zeros_like(dy)};  // not 0 * x^-1, which is NaN at 0
                     }
                     return {dy * (pow(c.saved(0), exponent - 1) * exponent)};
                   });
}

Tensor abs(const Tensor& input) {
  const Op op(named<"abs">);
  const Tensor x = op.input("x", input);
  return op.record({x}, pointwise::unary(op, Unary::abs, x), {x},
                   [](const Tensor& dy, const BackwardContext& c) -> Tensors {
                     return {straight_backward(Unary::abs, c.saved(0), dy)};
                   });
}

Tensor tanh(const Tensor& x) {
  return smooth(Op(named<"tanh">), Unary::tanh, x, [](const Tensor& y, const Tensor& dy) { return dy * (1 - y * y); });
}

Tensor sigmoid(const Tensor& x) {
  return smooth(Op(named<"sigmoid">), Unary::sigmoid, x,
                [](const Tensor& y, const Tensor& dy) { return dy * (y * (1 - y)); });
}

Tensor erf(const Tensor& x) {
  return smooth(Op(named<"erf">), Unary::erf, x, [](const Tensor& saved, const Tensor& dy) {
    return dy * (exp(-(saved * saved)) * 1.12837916709551257390);  // 2 / sqrt(pi)
  });
}

Tensor relu(const Tensor& input) {
  const Op op(named<"relu">);
  const Tensor x = op.input("x", input);
  const Tensor y = pointwise::unary(op, Unary::relu, x);
  return op.record({x}, y, {y}, [](const Tensor& dy, const BackwardContext& c) -> Tensors {
    return {relu_backward(c.saved(0), dy)};
  });
}

Tensor relu_backward(const Tensor& x, const Tensor& dy) {
  return straight_backward(Unary::relu, x, dy);
}

namespace {

/// sigmoid(v), computed from the smaller of it and 1 - sigmoid(v). That keeps its digits, and those of its derivatives:
/// 1 - y loses them for a y near 1. x has the sign of v.
class Sides {
 public:
  Sides(const Tensor& x, const Tensor& v)
      : positive_(greater(x, 0)), smaller_(norma::sigmoid(where(positive_, neg(v), v))) {}

  [[nodiscard]] Tensor sigmoid() const { return where(positive_, 1 - smaller_, smaller_); }
  /// sigmoid(v) (1 - sigmoid(v))
  [[nodiscard]] Tensor slope() const { return smaller_ * (1 - smaller_); }

 private:
  Tensor positive_;
  Tensor smaller_;
};

}  // namespace

Tensor silu_backward(const Tensor& x, const Tensor& dy) {
  const Sides side(x, x);
  return dy * (side.sigmoid() + x * side.slope());
}

Tensor silu(const Tensor& x) {
  return smooth(Op(named<"silu">), Unary::silu, x, silu_backward);
}

Tensor gelu_backward(const Tensor& x, const Tensor& dy) {
  const Tensor distribution = (erf(x * 0.70710678118654752440) + 1) * 0.5;
  const Tensor density = exp(x * x * -0.5) * 0.39894228040143267794;
  return dy * (distribution + x * density);
}

Tensor gelu(const Tensor& x, GeluApproximation approximate) {
  Op op(named<"gelu">);
  const bool by_tanh = approximate == GeluApproximation::tanh;
  op.describe({{"approximate", by_tanh ? "tanh" : "none"}});
  if (by_tanh) {
    return smooth(op, Unary::gelu_tanh, x, [](const Tensor& saved, const Tensor& dy) {
      // gelu = x s(v) with v = 2 sqrt(2 / pi) (x + 0.044715 x^3)
      constexpr double kTwice = 1.59576912160573071176;
      constexpr double kCubic = 0.044715;
      const Tensor square = saved * saved;
      const Sides side(saved, saved * (square * kCubic + 1) * kTwice);
      const Tensor slope = (square * (3 * kCubic) + 1) * kTwice;
      return dy * (side.sigmoid() + saved * side.slope() * slope);
    });
  }
  return smooth(op, Unary::gelu, x, gelu_backward);
}

Tensor clamp(const Tensor& input, double low, double high) {
  Op op(named<"clamp">);
  const Tensor x = op.input("x", input);
  const Scalars bounds{low, high};
  op.describe({{"low", low}, {"high", high}});
  return op.record({x}, pointwise::unary(op, Unary::clamp, x, bounds), {x},
                   [bounds](const Tensor& dy, const BackwardContext& c) -> Tensors {
                     return {straight_backward(Unary::clamp, c.saved(0), dy, bounds)};
                   });
}

}  // namespace norma

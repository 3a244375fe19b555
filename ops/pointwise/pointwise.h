#pragma once

#include "core/tensor.h"

namespace norma {

// Elementwise functions. All are differentiable (twice and more), take tensors of any strides, and return a new tensor.
// Dtypes: float32, float64, bfloat16 and float16 (computed in float32, rounded once); add, sub, mul, neg, abs, maximum
// and clamp also take int64 and int32, which wrap around; where and comparisons take any. Others are an Error. NaN
// gives NaN. Unary: the result has x's sizes and dtype, and its strides if those are dense, contiguous if x is so in
// both formats. Binary: operands broadcast; the result is contiguous if all operands are, channels_last if all are,
// else its axes are ordered as in the first operand of full size. Dtypes are promoted; a tensor of rank 0 widens the
// others only to a higher kind (integer to floating), so float32 with a float64 number of rank 0 stays float32. A
// double as second operand takes a's dtype; if that is an integer, the double must be a whole number.

Tensor add(const Tensor& a, const Tensor& b);
Tensor sub(const Tensor& a, const Tensor& b);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);  ///< the gradient is halved where a == b, as in PyTorch
Tensor add(const Tensor& a, double b);
Tensor sub(const Tensor& a, double b);
Tensor mul(const Tensor& a, double b);
Tensor div(const Tensor& a, double b);
/// condition ? a : b, element by element; condition is bool.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);

Tensor neg(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor pow(const Tensor& x, double exponent);
/// Power: x to the power of each element of `exponent`, as std::pow. Floating dtypes. As in PyTorch, the gradient of x
/// is 0 where the exponent is 0; that of the exponent is 0 where x is 0 and the exponent not negative, and NaN where x
/// < 0.
Tensor pow(const Tensor& x, const Tensor& exponent);
Tensor abs(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor relu(const Tensor& x);
/// x * sigmoid(x)
Tensor silu(const Tensor& x);

enum class GeluApproximation { none, tanh };
/// none: x * (1 + erf(x / sqrt(2))) / 2.
/// tanh: x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2.
/// Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
Tensor gelu(const Tensor& x, GeluApproximation approximate = GeluApproximation::none);
/// min(max(x, low), high); infinite bounds leave a side open. The gradient passes where low < x < high, so not on the
/// bounds: as in PyTorch 2.15 (before, it passed there).
Tensor clamp(const Tensor& x, double low, double high);

/// Comparisons give bool and have no gradient. Where an element is NaN, only not_equal() holds. An integer is compared
/// with the double itself: 2 is less than 2.5. less(a, b) is greater(b, a), less_equal(a, b) is greater_equal(b, a):
/// also in the layout of the result, and in the texts of errors.
Tensor equal(const Tensor& a, const Tensor& b);
Tensor not_equal(const Tensor& a, const Tensor& b);
Tensor greater(const Tensor& a, const Tensor& b);
Tensor greater_equal(const Tensor& a, const Tensor& b);
Tensor less(const Tensor& a, const Tensor& b);
Tensor less_equal(const Tensor& a, const Tensor& b);
Tensor equal(const Tensor& a, double b);
Tensor not_equal(const Tensor& a, double b);
Tensor greater(const Tensor& a, double b);
Tensor greater_equal(const Tensor& a, double b);
Tensor less(const Tensor& a, double b);
Tensor less_equal(const Tensor& a, double b);

// In-place functions write the result into x, which keeps its strides and dtype, and return x. b must broadcast to x's
// sizes and is converted to x's dtype, which must not be an integer when b's is not. b may lie in x's memory. They
// throw Error for a leaf that requires a gradient (unless gradients are off), for a view while the change would be
// recorded, and for an expanded x. div_, relu_, exp_ and sqrt_ may save their result: a later change makes backward
// fail.
Tensor& add_(Tensor& x, const Tensor& b);
Tensor& sub_(Tensor& x, const Tensor& b);
Tensor& mul_(Tensor& x, const Tensor& b);
Tensor& div_(Tensor& x, const Tensor& b);
Tensor& add_(Tensor& x, double b);
Tensor& mul_(Tensor& x, double b);
Tensor& relu_(Tensor& x);
Tensor& neg_(Tensor& x);
Tensor& exp_(Tensor& x);
Tensor& sqrt_(Tensor& x);
Tensor& clamp_(Tensor& x, double low, double high);

inline Tensor operator+(const Tensor& a, const Tensor& b) {
  return add(a, b);
}
inline Tensor operator-(const Tensor& a, const Tensor& b) {
  return sub(a, b);
}
inline Tensor operator*(const Tensor& a, const Tensor& b) {
  return mul(a, b);
}
inline Tensor operator/(const Tensor& a, const Tensor& b) {
  return div(a, b);
}
inline Tensor operator+(const Tensor& a, double b) {
  return add(a, b);
}
inline Tensor operator-(const Tensor& a, double b) {
  return sub(a, b);
}
inline Tensor operator*(const Tensor& a, double b) {
  return mul(a, b);
}
inline Tensor operator/(const Tensor& a, double b) {
  return div(a, b);
}
inline Tensor operator+(double a, const Tensor& b) {
  return add(b, a);
}
inline Tensor operator-(double a, const Tensor& b) {
  return add(neg(b), a);
}
inline Tensor operator*(double a, const Tensor& b) {
  return mul(b, a);
}
inline Tensor operator/(double a, const Tensor& b) {
  return mul(pow(b, -1), a);
}
inline Tensor operator-(const Tensor& x) {
  return neg(x);
}

}  // namespace norma

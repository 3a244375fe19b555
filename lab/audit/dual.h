#pragma once

#include <cmath>

namespace norma::lab::audit {

/// A number and its derivative by one variable, in the widest floating type. A number that does not depend on the
/// variable has no derivative at all: a derivative of 0 times NaN would be NaN.
struct Dual {
  long double value = 0;
  long double slope = 0;
  bool depends = false;
};

/// f(x) with f'(x) = slope.
inline Dual chain(const Dual& x, long double value, long double slope) {
  return {value, x.depends ? slope * x.slope : 0, x.depends};
}
inline Dual operator+(const Dual& a, const Dual& b) {
  return {a.value + b.value, a.slope + b.slope, a.depends || b.depends};
}
inline Dual operator-(const Dual& a, const Dual& b) {
  return {a.value - b.value, a.slope - b.slope, a.depends || b.depends};
}
inline Dual operator*(const Dual& a, const Dual& b) {
  const long double by_a = a.depends ? a.slope * b.value : 0;
  const long double by_b = b.depends ? b.slope * a.value : 0;
  return {a.value * b.value, by_a + by_b, a.depends || b.depends};
}
inline Dual inverse(const Dual& x) {
  return chain(x, 1 / x.value, -1 / (x.value * x.value));
}
inline Dual operator/(const Dual& a, const Dual& b) {
  return a * inverse(b);
}
inline Dual sqrt(const Dual& x) {
  const long double root = std::sqrt(x.value);
  return chain(x, root, 1 / (2 * root));
}
inline Dual tanh(const Dual& x) {
  const long double cosine = std::cosh(x.value);
  return chain(x, std::tanh(x.value), 1 / (cosine * cosine));
}
inline Dual sigmoid(const Dual& x) {
  const long double s = 1 / (1 + std::exp(-x.value));
  return chain(x, s, s / (1 + std::exp(x.value)));
}
inline Dual pow(const Dual& x, long double exponent) {
  return chain(x, std::pow(x.value, exponent), exponent * std::pow(x.value, exponent - 1));
}
/// The larger one; NaN if one is NaN.
inline Dual maximum(const Dual& a, const Dual& b) {
  return std::isnan(a.value) || a.value >= b.value ? a : b;
}

}  // namespace norma::lab::audit

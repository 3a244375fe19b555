#pragma once

#include "core/cuda/number.h"

#include <cmath>

// Functions of one number, with the names and the meaning that core/simd gives them for vectors: a formula that is a
// template over its values serves both. NaN gives NaN everywhere.

namespace norma::kernels::NORMA_BACKEND {

template <class T>
NORMA_DEVICE T broadcast(T value) {
  return value;
}
/// a * b + c, rounded once.
template <class T>
NORMA_DEVICE T multiply_add(T a, T b, T c) {
  return fused_multiply_add(a, b, c);
}
template <class T>
NORMA_DEVICE bool is_nan(T x) {
  return !(x == x);
}
/// condition ? yes : no
template <class T>
NORMA_DEVICE T select(bool condition, T yes, T no) {
  return condition ? yes : no;
}
/// condition ? 0 : no
template <class T>
NORMA_DEVICE T zero_where(bool condition, T no) {
  return condition ? T(0) : no;
}
/// The smaller, and the larger, of a limit and x.
template <class T>
NORMA_DEVICE T at_most(T limit, T x) {
  return limit < x ? limit : x;
}
template <class T>
NORMA_DEVICE T at_least(T limit, T x) {
  return x < limit ? limit : x;
}

template <class T>
NORMA_DEVICE T abs(T x) {
  return std::fabs(x);
}
template <class T>
NORMA_DEVICE T sqrt(T x) {
  return std::sqrt(x);
}
template <class T>
NORMA_DEVICE T exp(T x) {
  return std::exp(x);
}
template <class T>
NORMA_DEVICE T log(T x) {
  return std::log(x);
}
template <class T>
NORMA_DEVICE T tanh(T x) {
  return std::tanh(x);
}
template <class T>
NORMA_DEVICE T erf(T x) {
  return std::erf(x);
}
template <class T>
NORMA_DEVICE T pow(T x, T exponent) {
  return std::pow(x, exponent);
}

/// 1 / (1 + e^-x)
template <class T>
NORMA_DEVICE T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}

/// sigmoid(x) and its slope, sigmoid(x) (1 - sigmoid(x)). For a y near 1 the difference 1 - y has lost its digits.
template <class T>
struct Sigmoid {
  T value;
  T slope;
};
template <class T>
NORMA_DEVICE Sigmoid<T> sigmoid_and_slope(T x) {
  const T e = exp(-abs(x));
  const T larger = T(1) / (T(1) + e);
  const T smaller = e * larger;
  return {x < T(0) ? smaller : larger, smaller * larger};
}

/// The normal density and distribution function at one place.
template <class T>
struct Normal {
  T density;
  T distribution;
};
template <class T>
NORMA_DEVICE Normal<T> normal(T x) {
  constexpr T kSqrtHalf = T(0.70710678118654752440);
  constexpr T kInverseSqrt2Pi = T(0.39894228040143267794);
  return {kInverseSqrt2Pi * exp(T(-0.5) * x * x), T(0.5) * std::erfc(-x * kSqrtHalf)};
}

}  // namespace norma::kernels::NORMA_BACKEND

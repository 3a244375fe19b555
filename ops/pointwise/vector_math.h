#pragma once

#include "core/multiply_add.h"

#include <bit>
#include <cmath>
#include <cstdint>

namespace norma::vector_math {

// Elementary functions that a compiler turns into vector code inside `#pragma omp simd`: no branches, no calls,
// only selections. The float forms are polynomials fitted by interpolation at Chebyshev nodes; the errors named are
// largest distances from the float64 result in units of the last place (tests/core/simd_test.cpp measures those).
// The double forms are the standard library's. NaN gives NaN everywhere.

inline double exp(double x) {
  return std::exp(x);
}
inline double log(double x) {
  return std::log(x);
}
inline double tanh(double x) {
  return std::tanh(x);
}
inline double erf(double x) {
  return std::erf(x);
}

namespace detail {
/// 2^n for n in [-126, 127], given as an integer's bits.
inline float power_of_two(uint32_t n) {
  return std::bit_cast<float>((n + 127U) << 23);
}
}  // namespace detail

/// e^x to 1 unit; subnormal results are rounded twice.
inline float exp(float x) {
  constexpr float kLog2E = 1.44269502F;
  constexpr float kLn2High = 0.693359375F;  // few bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194442e-4F;
  constexpr float kRound = 0x1.8p23F;  // adding it leaves the nearest integer in the low bits
  // Beyond these the result is 0 or infinite. Written so that NaN stays.
  const float low = -104.0F > x ? -104.0F : x;
  const float clamped = 89.0F < low ? 89.0F : low;
  // x = n ln 2 + r, |r| <= ln 2 / 2
  const float shifted = multiply_add(clamped, kLog2E, kRound);
  const float n = shifted - kRound;
  const float r = multiply_add(-n, kLn2Low, multiply_add(-n, kLn2High, clamped));
  // e^r = 1 + r + r^2 q(r)
  float q = 0.0013926184F;
  q = multiply_add(q, r, 0.00836317893F);
  q = multiply_add(q, r, 0.0416665561F);
  q = multiply_add(q, r, 0.166665763F);
  q = multiply_add(q, r, 0.5F);
  const float p = 1.0F + multiply_add(r * r, q, r);
  // 2^n in two factors, since n reaches from -150 to 128
  const uint32_t power = std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound);
  const auto half = static_cast<uint32_t>(static_cast<int32_t>(power) >> 1);
  return p * detail::power_of_two(half) * detail::power_of_two(power - half);
}

/// ln x to 1 unit.
inline float log(float x) {
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194442e-4F;
  constexpr uint32_t kSqrtHalf = 0x3F3504F3U;
  // Subnormal numbers have no exponent to read: shift them up.
  const bool small = x < 0x1p-126F;
  const float scaled = small ? x * 0x1p23F : x;
  // x = 2^n m, m in [sqrt(1/2), sqrt(2))
  const uint32_t bits = std::bit_cast<uint32_t>(scaled) - kSqrtHalf;
  const float n = static_cast<float>(static_cast<int32_t>(bits) >> 23) - (small ? 23.0F : 0.0F);
  const float f = std::bit_cast<float>((bits & 0x007FFFFFU) + kSqrtHalf) - 1.0F;
  // ln(1 + f) = f - f^2 / 2 + f^3 q(f)
  float q = 0.0697161183F;
  q = multiply_add(q, f, -0.114797339F);
  q = multiply_add(q, f, 0.116854198F);
  q = multiply_add(q, f, -0.124256872F);
  q = multiply_add(q, f, 0.142490581F);
  q = multiply_add(q, f, -0.166678026F);
  q = multiply_add(q, f, 0.200007156F);
  q = multiply_add(q, f, -0.24999997F);
  q = multiply_add(q, f, 0.333333313F);
  const float square = f * f;
  const float rest = multiply_add(-0.5F, square, multiply_add(square * f, q, n * kLn2Low));
  const float value = multiply_add(n, kLn2High, f + rest);
  const float infinity = std::bit_cast<float>(0x7F800000U);
  const float invalid = std::bit_cast<float>(0x7FC00000U);
  const float positive = x == infinity ? infinity : value;
  const float nonnegative = x == 0.0F ? -infinity : positive;
  return x >= 0.0F ? nonnegative : invalid;
}

/// tanh x to 2 units.
inline float tanh(float x) {
  const float a = std::fabs(x);
  // small: x + x^3 q(x^2)
  const float u = x * x;
  float q = -0.00661022775F;
  q = multiply_add(q, u, 0.0213093888F);
  q = multiply_add(q, u, -0.0539094284F);
  q = multiply_add(q, u, 0.133331135F);
  q = multiply_add(q, u, -0.333333313F);
  const float near = multiply_add(a * u, q, a);
  // large: 1 - 2 / (e^2|x| + 1)
  const float far = 1.0F - 2.0F / (exp(2.0F * a) + 1.0F);
  return std::copysign(a < 0.55F ? near : far, x);
}

/// R(t) = e^(t^2 / 2) (1 - Phi(t)) for t >= 0, where Phi is the normal distribution function. (t + 5/2) R(t) is smooth
/// and bounded, and so nearly a polynomial in w = t / (t + 5/2). It is 5/4 at 0, where accuracy counts most.
inline float scaled_normal_tail(float t) {
  const float bounded = 16.0F < t ? 16.0F : t;  // e^(-t^2 / 2) is 0 there; keeps infinity out
  const float k = 1.0F / (bounded + 2.5F);
  const float w = bounded * k;
  float p = -0.0629931763F;
  p = multiply_add(p, w, 0.216628507F);
  p = multiply_add(p, w, -0.21518527F);
  p = multiply_add(p, w, 0.0562483855F);
  p = multiply_add(p, w, -0.110492848F);
  p = multiply_add(p, w, 0.0451398566F);
  p = multiply_add(p, w, 0.293521672F);
  p = multiply_add(p, w, 0.169487596F);
  p = multiply_add(p, w, -1.24338937F);
  p = multiply_add(p, w, 1.25F);
  return p * k;
}

/// erf x to 2 units.
inline float erf(float x) {
  constexpr float kSqrt2 = 1.41421354F;
  const float a = std::fabs(x);
  // small: x + x q(x^2)
  const float u = x * x;
  float q = 7.87587487e-05F;
  q = multiply_add(q, u, -0.00080168643F);
  q = multiply_add(q, u, 0.00518908724F);
  q = multiply_add(q, u, -0.0268542115F);
  q = multiply_add(q, u, 0.112835944F);
  q = multiply_add(q, u, -0.37612626F);
  q = multiply_add(q, u, 0.128379166F);
  const float near = multiply_add(a, q, a);
  // large: 1 - 2 e^(-x^2) R(sqrt(2) |x|)
  const float far = multiply_add(-2.0F * exp(-u), scaled_normal_tail(kSqrt2 * a), 1.0F);
  return std::copysign(a < 1.0F ? near : far, x);
}

/// 1 / (1 + e^-x), to 2 units in float.
template <class T>
T sigmoid(T x) {
  return T(1) / (T(1) + exp(-x));
}

/// sigmoid(x) and its slope, sigmoid(x) (1 - sigmoid(x)), both to a few units: 1 - y of a y near 1 has lost its digits.
template <class T>
struct Sigmoid {
  T value;
  T slope;

  explicit Sigmoid(T x) {
    const T e = exp(-std::fabs(x));
    const T larger = T(1) / (T(1) + e);
    const T smaller = e * larger;
    value = x < T(0) ? smaller : larger;
    slope = smaller * larger;
  }
};

/// The normal density and distribution function at one place.
template <class T>
struct Normal {
  T density;
  T distribution;
};

inline Normal<double> normal(double x) {
  constexpr double kSqrtHalf = 0.70710678118654752440;
  constexpr double kInverseSqrt2Pi = 0.39894228040143267794;
  return {kInverseSqrt2Pi * std::exp(-0.5 * x * x), 0.5 * std::erfc(-x * kSqrtHalf)};
}

/// Both from one exponential: density = e^(-x^2 / 2) / sqrt(2 pi); 1 - Phi(|x|) = e^(-x^2 / 2) R(|x|).
inline Normal<float> normal(float x) {
  constexpr float kInverseSqrt2Pi = 0.398942292F;
  const float a = std::fabs(x);
  const float e = exp(-0.5F * x * x);
  const float tail = e * scaled_normal_tail(a);
  return {kInverseSqrt2Pi * e, x < 0.0F ? tail : 1.0F - tail};
}

}  // namespace norma::vector_math

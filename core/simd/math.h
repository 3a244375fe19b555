// Elementary functions of vectors. The float forms are polynomials fitted by interpolation at Chebyshev nodes; the
// errors named are largest distances from the float64 result in units of the last place (tests/core/simd_test.cpp
// measures them). The double forms are the standard library's. NaN gives NaN everywhere.

// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_CORE_SIMD_MATH_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_CORE_SIMD_MATH_H
#undef NORMA_CORE_SIMD_MATH_H
#else
#define NORMA_CORE_SIMD_MATH_H
#endif

#include "core/simd/memory.h"

#include <cmath>
#include <cstdint>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace norma::simd::HWY_NAMESPACE {

namespace detail {

/// f(number) for each.
template <class F>
HWY_INLINE Lanes<double> one_by_one(const Lanes<double>& x, F f) {
  double numbers[kLanes<double>];
  store(static_cast<double*>(numbers), x, Whole{});
  for (double& number : numbers) {
    number = f(number);
  }
  return load(static_cast<const double*>(numbers), Whole{});
}

/// Horner's rule, the highest power first.
template <class First, class... Others>
HWY_INLINE Lanes<float> polynomial(const Lanes<float>& x, First first, Others... others) {
  Lanes<float> sum = broadcast(static_cast<float>(first));
  ((sum = multiply_add(sum, x, broadcast(static_cast<float>(others)))), ...);
  return sum;
}

}  // namespace detail

template <class R, int n>
HWY_INLINE Parts<R, n> abs(const Parts<R, n>& x) {
  return by_register([](R v) HWY_ATTR { return hn::Abs(v); }, x);
}
template <class R, int n>
HWY_INLINE Parts<R, n> copy_sign(const Parts<R, n>& magnitude, const Parts<R, n>& sign) {
  return by_register([](R m, R s) HWY_ATTR { return hn::CopySign(m, s); }, magnitude, sign);
}
template <class R, int n>
HWY_INLINE Parts<R, n> sqrt(const Parts<R, n>& x) {
  return by_register([](R v) HWY_ATTR { return hn::Sqrt(v); }, x);
}
/// The smaller, and the larger, of a limit and x; NaN where x is: processors that do not return every NaN return the
/// second argument where there is one.
template <class R, int n>
HWY_INLINE Parts<R, n> at_most(hn::TFromV<R> limit, const Parts<R, n>& x) {
  return by_register([](R most, R v) HWY_ATTR { return hn::Min(most, v); }, broadcast<hn::TFromV<R>, n>(limit), x);
}
template <class R, int n>
HWY_INLINE Parts<R, n> at_least(hn::TFromV<R> limit, const Parts<R, n>& x) {
  return by_register([](R least, R v) HWY_ATTR { return hn::Max(least, v); }, broadcast<hn::TFromV<R>, n>(limit), x);
}

/// e^x to 1 unit; subnormal results are rounded twice.
HWY_INLINE Lanes<float> exp(const Lanes<float>& x) {
  constexpr float kLog2E = 1.44269502F;
  constexpr float kLn2High = 0.693359375F;  // few bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194442e-4F;
  constexpr float kRound = 0x1.8p23F;  // adding it leaves the nearest integer in the low bits
  const Lanes<float> clamped = at_most(89.0F, at_least(-104.0F, x));  // beyond these the result is 0 or infinite
  // x = n ln 2 + r, |r| <= ln 2 / 2
  const Lanes<float> shifted = multiply_add(clamped, broadcast(kLog2E), broadcast(kRound));
  const Lanes<float> n = shifted - kRound;
  const Lanes<float> r = multiply_add(n, broadcast(-kLn2Low), multiply_add(n, broadcast(-kLn2High), clamped));
  // e^r = 1 + r + r^2 q(r)
  const Lanes<float> q = detail::polynomial(r, 0.0013926184F, 0.00836317893F, 0.0416665561F, 0.166665763F, 0.5F);
  const Lanes<float> p = 1.0F + multiply_add(r * r, q, r);
  // 2^n in two factors, since n reaches from -150 to 128
  using R = hn::Vec<Tag<float>>;
  return by_register(
      [](R mantissa, R rounded) HWY_ATTR {
        constexpr Tag<float> kFloat;
        const auto power =
            hn::Sub(hn::BitCast(SignedWords{}, rounded), hn::BitCast(SignedWords{}, hn::Set(kFloat, kRound)));
        const auto half = hn::ShiftRight<1>(power);
        const auto bias = hn::Set(SignedWords{}, 127);
        const auto first = hn::ShiftLeft<23>(hn::Add(half, bias));
        const auto second = hn::ShiftLeft<23>(hn::Add(hn::Sub(power, half), bias));
        return hn::Mul(hn::Mul(mantissa, hn::BitCast(kFloat, first)), hn::BitCast(kFloat, second));
      },
      p, shifted);
}
HWY_INLINE Lanes<double> exp(const Lanes<double>& x) {
  return detail::one_by_one(x, [](double v) HWY_ATTR { return std::exp(v); });
}

/// ln x to 1 unit.
HWY_INLINE Lanes<float> log(const Lanes<float>& x) {
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194442e-4F;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // Subnormal numbers have no exponent to read: shift them up.
  const auto small = x < broadcast(0x1p-126F);
  const Lanes<float> scaled = select(small, x * 0x1p23F, x);
  // x = 2^n m, m in [sqrt(1/2), sqrt(2))
  using R = hn::Vec<Tag<float>>;
  constexpr int32_t kSqrtHalf = 0x3F3504F3;
  const Lanes<float> power = by_register(
      [](R v) HWY_ATTR {
        const auto bits = hn::Sub(hn::BitCast(SignedWords{}, v), hn::Set(SignedWords{}, kSqrtHalf));
        return hn::ConvertTo(Tag<float>{}, hn::ShiftRight<23>(bits));
      },
      scaled);
  const Lanes<float> m = by_register(
      [](R v) HWY_ATTR {
        const auto base = hn::Set(SignedWords{}, kSqrtHalf);
        const auto bits = hn::Sub(hn::BitCast(SignedWords{}, v), base);
        return hn::BitCast(Tag<float>{}, hn::Add(hn::And(bits, hn::Set(SignedWords{}, 0x007FFFFF)), base));
      },
      scaled);
  const Lanes<float> n = power - select(small, broadcast(23.0F), broadcast(0.0F));
  const Lanes<float> f = m - 1.0F;
  // ln(1 + f) = f - f^2 / 2 + f^3 q(f)
  const Lanes<float> q = detail::polynomial(f, 0.0697161183F, -0.114797339F, 0.116854198F, -0.124256872F, 0.142490581F,
                                            -0.166678026F, 0.200007156F, -0.24999997F, 0.333333313F);
  const Lanes<float> square = f * f;
  const Lanes<float> rest = multiply_add(broadcast(-0.5F), square, multiply_add(square * f, q, n * kLn2Low));
  const Lanes<float> value = multiply_add(n, broadcast(kLn2High), f + rest);
  const Lanes<float> zero = broadcast(0.0F);
  const Lanes<float> positive = select(x < broadcast(kInfinity), value, broadcast(kInfinity));
  const Lanes<float> not_negative = select(zero < x, positive, broadcast(-kInfinity));
  return select(zero <= x, not_negative, broadcast(std::numeric_limits<float>::quiet_NaN()));
}
HWY_INLINE Lanes<double> log(const Lanes<double>& x) {
  return detail::one_by_one(x, [](double v) HWY_ATTR { return std::log(v); });
}

/// tanh x to 2 units.
HWY_INLINE Lanes<float> tanh(const Lanes<float>& x) {
  const Lanes<float> a = abs(x);
  // small: x + x^3 q(x^2)
  const Lanes<float> u = x * x;
  const Lanes<float> q =
      detail::polynomial(u, -0.00661022775F, 0.0213093888F, -0.0539094284F, 0.133331135F, -0.333333313F);
  const Lanes<float> near = multiply_add(a * u, q, a);
  // large: 1 - 2 / (e^2|x| + 1)
  const Lanes<float> far = 1.0F - 2.0F / (exp(2.0F * a) + 1.0F);
  return copy_sign(select(a < broadcast(0.55F), near, far), x);
}
HWY_INLINE Lanes<double> tanh(const Lanes<double>& x) {
  return detail::one_by_one(x, [](double v) HWY_ATTR { return std::tanh(v); });
}

/// R(t) = e^(t^2 / 2) (1 - Phi(t)) for t >= 0, where Phi is the normal distribution function. (t + 5/2) R(t) is smooth
/// and bounded, and so nearly a polynomial in w = t / (t + 5/2). It is 5/4 at 0, where accuracy counts most.
HWY_INLINE Lanes<float> scaled_normal_tail(const Lanes<float>& t) {
  const Lanes<float> bounded = at_most(16.0F, t);  // e^(-t^2 / 2) is 0 there; keeps infinity out
  const Lanes<float> k = 1.0F / (bounded + 2.5F);
  const Lanes<float> w = bounded * k;
  const Lanes<float> p = detail::polynomial(w, -0.0629931763F, 0.216628507F, -0.21518527F, 0.0562483855F, -0.110492848F,
                                            0.0451398566F, 0.293521672F, 0.169487596F, -1.24338937F, 1.25F);
  return p * k;
}

/// erf x to 2 units.
HWY_INLINE Lanes<float> erf(const Lanes<float>& x) {
  constexpr float kSqrt2 = 1.41421354F;
  const Lanes<float> a = abs(x);
  // small: x + x q(x^2)
  const Lanes<float> u = x * x;
  const Lanes<float> q = detail::polynomial(u, 7.87587487e-05F, -0.00080168643F, 0.00518908724F, -0.0268542115F,
                                            0.112835944F, -0.37612626F, 0.128379166F);
  const Lanes<float> near = multiply_add(a, q, a);
  // large: 1 - 2 e^(-x^2) R(sqrt(2) |x|)
  const Lanes<float> far = multiply_add(-2.0F * exp(-u), scaled_normal_tail(kSqrt2 * a), broadcast(1.0F));
  return copy_sign(select(a < broadcast(1.0F), near, far), x);
}
HWY_INLINE Lanes<double> erf(const Lanes<double>& x) {
  return detail::one_by_one(x, [](double v) HWY_ATTR { return std::erf(v); });
}

/// 1 / (1 + e^-x), to 2 units in float.
template <class R, int n>
HWY_INLINE Parts<R, n> sigmoid(const Parts<R, n>& x) {
  using T = hn::TFromV<R>;
  return T(1) / (T(1) + exp(-x));
}

/// sigmoid(x) and its slope, sigmoid(x) (1 - sigmoid(x)), both to a few units: 1 - y of a y near 1 has lost its digits.
template <class T>
struct Sigmoid {
  Lanes<T> value;
  Lanes<T> slope;
};
template <class R, int n>
HWY_INLINE auto sigmoid_and_slope(const Parts<R, n>& x) {
  using T = hn::TFromV<R>;
  const Lanes<T> e = exp(-abs(x));
  const Lanes<T> larger = T(1) / (T(1) + e);
  const Lanes<T> smaller = e * larger;
  return Sigmoid<T>{select(x < broadcast(T(0)), smaller, larger), smaller * larger};
}

/// The normal density and distribution function at one place.
template <class T>
struct Normal {
  Lanes<T> density;
  Lanes<T> distribution;
};

/// Both from one exponential: density = e^(-x^2 / 2) / sqrt(2 pi); 1 - Phi(|x|) = e^(-x^2 / 2) R(|x|).
HWY_INLINE Normal<float> normal(const Lanes<float>& x) {
  constexpr float kInverseSqrt2Pi = 0.398942292F;
  const Lanes<float> e = exp(-0.5F * x * x);
  const Lanes<float> tail = e * scaled_normal_tail(abs(x));
  return {kInverseSqrt2Pi * e, select(x < broadcast(0.0F), tail, 1.0F - tail)};
}
HWY_INLINE Normal<double> normal(const Lanes<double>& x) {
  constexpr double kSqrtHalf = 0.70710678118654752440;
  constexpr double kInverseSqrt2Pi = 0.39894228040143267794;
  return {detail::one_by_one(x, [](double v) HWY_ATTR { return kInverseSqrt2Pi * std::exp(-0.5 * v * v); }),
          detail::one_by_one(x, [](double v) HWY_ATTR { return 0.5 * std::erfc(-v * kSqrtHalf); })};
}

}  // namespace norma::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

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

template <int registers>
using Floats = Parts<hn::Vec<Tag<float>>, registers>;
template <int registers>
using Doubles = Parts<hn::Vec<Tag<double>>, registers>;

namespace detail {

/// f of each number.
template <class F, int registers>
HWY_INLINE Doubles<registers> one_by_one(const Doubles<registers>& x, F f) {
  double numbers[registers * kRegisterLanes<double>];
  store(static_cast<double*>(numbers), x);
  for (double& number : numbers) {
    number = f(number);
  }
  return load<double, registers>(numbers);
}

/// Horner's rule, the highest power first.
template <int registers, class First, class... Others>
HWY_INLINE Floats<registers> polynomial(const Floats<registers>& x, First first, Others... others) {
  Floats<registers> sum = broadcast<float, registers>(static_cast<float>(first));
  ((sum = multiply_add(sum, x, broadcast<float, registers>(static_cast<float>(others)))), ...);
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
/// The smaller, and the larger, of a limit and x. They are NaN where x is: of two arguments of which one is NaN, x86
/// returns the second, and ARM the number.
template <class R, int n>
HWY_INLINE Parts<R, n> at_most(hn::TFromV<R> limit, const Parts<R, n>& x) {
#if HWY_ARCH_X86
  return by_register([](R most, R v) HWY_ATTR { return hn::Min(most, v); }, broadcast<hn::TFromV<R>, n>(limit), x);
#else
  return select(broadcast<hn::TFromV<R>, n>(limit) < x, broadcast<hn::TFromV<R>, n>(limit), x);
#endif
}
template <class R, int n>
HWY_INLINE Parts<R, n> at_least(hn::TFromV<R> limit, const Parts<R, n>& x) {
#if HWY_ARCH_X86
  return by_register([](R least, R v) HWY_ATTR { return hn::Max(least, v); }, broadcast<hn::TFromV<R>, n>(limit), x);
#else
  return select(x < limit, broadcast<hn::TFromV<R>, n>(limit), x);
#endif
}

/// e^x to 1 unit; subnormal results are rounded twice.
template <int registers>
HWY_INLINE Floats<registers> exp(const Floats<registers>& x) {
  constexpr float kLog2E = 1.44269502F;
  constexpr float kLn2High = 0.693359375F;  // few bits: n * kLn2High is exact
  constexpr float kLn2Low = -2.12194442e-4F;
  constexpr float kRound = 0x1.8p23F;  // adding it leaves the nearest integer in the low bits
  const Floats<registers> clamped = at_most(89.0F, at_least(-104.0F, x));  // beyond these the result is 0 or infinite
  // x = n ln 2 + r, |r| <= ln 2 / 2
  const Floats<registers> shifted =
      multiply_add(clamped, broadcast<float, registers>(kLog2E), broadcast<float, registers>(kRound));
  const Floats<registers> n = shifted - kRound;
  const Floats<registers> r = multiply_add(n, broadcast<float, registers>(-kLn2Low),
                                           multiply_add(n, broadcast<float, registers>(-kLn2High), clamped));
  // e^r = 1 + r + r^2 q(r)
  const Floats<registers> q = detail::polynomial(r, 0.0013926184F, 0.00836317893F, 0.0416665561F, 0.166665763F, 0.5F);
  const Floats<registers> p = 1.0F + multiply_add(r * r, q, r);
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
template <int registers>
HWY_INLINE Doubles<registers> exp(const Doubles<registers>& x) {
  return detail::one_by_one(x, [](double v) HWY_ATTR { return std::exp(v); });
}

/// e^x for x <= 0 to 2^-17 of it, for results of 16 bits, in half the time; 0 below -87.
template <int registers>
HWY_INLINE Floats<registers> exp_for_16_bits(const Floats<registers>& x) {
  constexpr float kLog2E = 1.44269502F;
  constexpr float kRound = 0x1.8p23F;
  const Floats<registers> power = at_least(-126.0F, x * kLog2E);
  const Floats<registers> shifted = power + kRound;
  const Floats<registers> r = power - (shifted - kRound);
  // 2^r = 1 + r q(r)
  const Floats<registers> q = detail::polynomial(r, 0.009582853F, 0.055906426F, 0.24024099F, 0.6931242F);
  const Floats<registers> p = multiply_add(r, q, broadcast<float, registers>(1.0F));
  using R = hn::Vec<Tag<float>>;
  const Floats<registers> scaled = by_register(
      [](R mantissa, R rounded) HWY_ATTR {  // the lowest bits of `rounded` are the exponent
        const auto exponent = hn::ShiftLeft<23>(hn::BitCast(SignedWords{}, rounded));
        return hn::BitCast(Tag<float>{}, hn::Add(hn::BitCast(SignedWords{}, mantissa), exponent));
      },
      p, shifted);
  return select(x < broadcast<float, registers>(-87.0F), broadcast<float, registers>(0.0F),
                select(x < broadcast<float, registers>(1.0F), scaled, x));  // NaN stays
}

/// ln x to 1 unit.
template <int registers>
HWY_INLINE Floats<registers> log(const Floats<registers>& x) {
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194442e-4F;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  // Subnormal numbers have no exponent to read: shift them up.
  const auto small = x < broadcast<float, registers>(0x1p-126F);
  const Floats<registers> scaled = select(small, x * 0x1p23F, x);
  // x = 2^n m, m in [sqrt(1/2), sqrt(2))
  using R = hn::Vec<Tag<float>>;
  constexpr int32_t kSqrtHalf = 0x3F3504F3;
  const Floats<registers> power = by_register(
      [](R v) HWY_ATTR {
        const auto bits = hn::Sub(hn::BitCast(SignedWords{}, v), hn::Set(SignedWords{}, kSqrtHalf));
        return hn::ConvertTo(Tag<float>{}, hn::ShiftRight<23>(bits));
      },
      scaled);
  const Floats<registers> m = by_register(
      [](R v) HWY_ATTR {
        const auto base = hn::Set(SignedWords{}, kSqrtHalf);
        const auto bits = hn::Sub(hn::BitCast(SignedWords{}, v), base);
        return hn::BitCast(Tag<float>{}, hn::Add(hn::And(bits, hn::Set(SignedWords{}, 0x007FFFFF)), base));
      },
      scaled);
  const Floats<registers> n =
      power - select(small, broadcast<float, registers>(23.0F), broadcast<float, registers>(0.0F));
  const Floats<registers> f = m - 1.0F;
  // ln(1 + f) = f - f^2 / 2 + f^3 q(f)
  const Floats<registers> q = detail::polynomial(f, 0.0697161183F, -0.114797339F, 0.116854198F, -0.124256872F,
                                                 0.142490581F, -0.166678026F, 0.200007156F, -0.24999997F, 0.333333313F);
  const Floats<registers> square = f * f;
  const Floats<registers> rest =
      multiply_add(broadcast<float, registers>(-0.5F), square, multiply_add(square * f, q, n * kLn2Low));
  const Floats<registers> value = multiply_add(n, broadcast<float, registers>(kLn2High), f + rest);
  const Floats<registers> zero = broadcast<float, registers>(0.0F);
  const Floats<registers> positive =
      select(x < broadcast<float, registers>(kInfinity), value, broadcast<float, registers>(kInfinity));
  const Floats<registers> not_negative = select(zero < x, positive, broadcast<float, registers>(-kInfinity));
  return select(zero <= x, not_negative, broadcast<float, registers>(std::numeric_limits<float>::quiet_NaN()));
}
template <int registers>
HWY_INLINE Doubles<registers> log(const Doubles<registers>& x) {
  return detail::one_by_one(x, [](double v) HWY_ATTR { return std::log(v); });
}

/// tanh x to 2 units.
template <int registers>
HWY_INLINE Floats<registers> tanh(const Floats<registers>& x) {
  const Floats<registers> a = abs(x);
  // small: x + x^3 q(x^2)
  const Floats<registers> u = x * x;
  const Floats<registers> q =
      detail::polynomial(u, -0.00661022775F, 0.0213093888F, -0.0539094284F, 0.133331135F, -0.333333313F);
  const Floats<registers> near = multiply_add(a * u, q, a);
  // large: 1 - 2 / (e^2|x| + 1)
  const Floats<registers> far = 1.0F - 2.0F / (exp(2.0F * a) + 1.0F);
  return copy_sign(select(a < broadcast<float, registers>(0.55F), near, far), x);
}
template <int registers>
HWY_INLINE Doubles<registers> tanh(const Doubles<registers>& x) {
  return detail::one_by_one(x, [](double v) HWY_ATTR { return std::tanh(v); });
}

/// R(t) = e^(t^2 / 2) (1 - Phi(t)) for t >= 0, where Phi is the normal distribution function. (t + 5/2) R(t) is smooth
/// and bounded, and so nearly a polynomial in w = t / (t + 5/2). It is 5/4 at 0, where accuracy counts most.
template <int registers>
HWY_INLINE Floats<registers> scaled_normal_tail(const Floats<registers>& t) {
  const Floats<registers> bounded = at_most(16.0F, t);  // e^(-t^2 / 2) is 0 there; keeps infinity out
  const Floats<registers> k = 1.0F / (bounded + 2.5F);
  const Floats<registers> w = bounded * k;
  const Floats<registers> p =
      detail::polynomial(w, -0.0629931763F, 0.216628507F, -0.21518527F, 0.0562483855F, -0.110492848F, 0.0451398566F,
                         0.293521672F, 0.169487596F, -1.24338937F, 1.25F);
  return p * k;
}

/// erf x to 2 units.
template <int registers>
HWY_INLINE Floats<registers> erf(const Floats<registers>& x) {
  constexpr float kSqrt2 = 1.41421354F;
  const Floats<registers> a = abs(x);
  // small: x + x q(x^2)
  const Floats<registers> u = x * x;
  const Floats<registers> q = detail::polynomial(u, 7.87587487e-05F, -0.00080168643F, 0.00518908724F, -0.0268542115F,
                                                 0.112835944F, -0.37612626F, 0.128379166F);
  const Floats<registers> near = multiply_add(a, q, a);
  // large: 1 - 2 e^(-x^2) R(sqrt(2) |x|)
  const Floats<registers> far =
      multiply_add(-2.0F * exp(-u), scaled_normal_tail(kSqrt2 * a), broadcast<float, registers>(1.0F));
  return copy_sign(select(a < broadcast<float, registers>(1.0F), near, far), x);
}
template <int registers>
HWY_INLINE Doubles<registers> erf(const Doubles<registers>& x) {
  return detail::one_by_one(x, [](double v) HWY_ATTR { return std::erf(v); });
}

/// 1 / (1 + e^-x), to 2 units in float.
template <class R, int n>
HWY_INLINE Parts<R, n> sigmoid(const Parts<R, n>& x) {
  using T = hn::TFromV<R>;
  return T(1) / (T(1) + exp(-x));
}

/// sigmoid(x) and its slope, sigmoid(x) (1 - sigmoid(x)), both to a few units. 1 - y loses digits for a y near 1.
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

/// Computes both from one exponential: density = e^(-x^2 / 2) / sqrt(2 pi); 1 - Phi(|x|) = e^(-x^2 / 2) R(|x|).
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

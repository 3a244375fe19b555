#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pointwise/cpu/unary.cpp"
#include "core/simd/foreach_target.h"

#include "core/simd/math.h"
#include "ops/pointwise/cpu/loops.h"
#include "ops/pointwise/cpu/pointwise_kernels.h"

#include <cmath>
#include <limits>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

namespace {

/// Constants of gelu_tanh: u(x) = kScale (x + kCubic x^3), gelu = x (1 + tanh u) / 2 = x sigmoid(2 u).
template <class T>
struct GeluTanh {
  static constexpr T kScale = T(0.79788456080286535588);  // sqrt(2 / pi)
  static constexpr T kCubic = T(0.044715);

  static HWY_INLINE Lanes<T> twice_u(const Lanes<T>& x) { return T(2) * kScale * x * (T(1) + kCubic * x * x); }
  /// d(2 u)/dx
  static HWY_INLINE Lanes<T> slope(const Lanes<T>& x) { return T(2) * kScale * (T(1) + T(3) * kCubic * x * x); }
};

template <class S>
void power(const Sizes& sizes, const Operand& y, const Operand& x, double exponent) {
  using T = compute_t<S>;
  using V = Lanes<T>;
  const auto run = [&](auto formula) { map<S>(sizes, y, x, formula); };
  // The usual exponents cost a few multiplications; std::pow costs a call for each element.
  if (exponent == 2) {
    return run([](const V& v) HWY_ATTR { return v * v; });
  }
  if (exponent == 3) {
    return run([](const V& v) HWY_ATTR { return v * v * v; });
  }
  if (exponent == -1) {
    return run([](const V& v) HWY_ATTR { return T(1) / v; });
  }
  if (exponent == 0.5) {
    return run([](const V& v) HWY_ATTR { return sqrt(v); });
  }
  if (exponent == -0.5) {
    return run([](const V& v) HWY_ATTR { return T(1) / sqrt(v); });
  }
  const T e = static_cast<T>(exponent);
  map_numbers<S, S>(sizes, y, x, [e](T v) { return std::pow(v, e); });
}

/// A bound of clamp in the dtype: for integers what lies outside their range becomes its end.
template <class T>
T bound(double value) {
  if constexpr (std::is_integral_v<T>) {
    // The largest int64 is no double: compare with 2^63 and 2^31, which are.
    const double limit = -static_cast<double>(std::numeric_limits<T>::min());
    if (value >= limit) {
      return std::numeric_limits<T>::max();
    }
    if (value <= -limit) {
      return std::numeric_limits<T>::min();
    }
  }
  return static_cast<T>(value);
}

template <class I>
void unary_integers(Unary f, const Sizes& sizes, const Operand& y, const Operand& x, const Scalars& scalars) {
  using U = std::make_unsigned_t<I>;  // the smallest integer wraps around to itself
  switch (f) {
    case Unary::neg: return map_numbers<U, U>(sizes, y, x, [](U v) { return U(0) - v; });
    case Unary::abs: return map_numbers<U, U>(sizes, y, x, [](U v) { return static_cast<I>(v) < 0 ? U(0) - v : v; });
    case Unary::clamp: {
      const I low = bound<I>(scalars.first);
      const I high = bound<I>(scalars.second);
      return map_numbers<I, I>(sizes, y, x, [low, high](I v) {
        const I raised = v < low ? low : v;
        return raised > high ? high : raised;
      });
    }
    default: fail("unary", "function {} has no integer form", static_cast<int>(f));
  }
}

template <class S>
void unary_floating(Unary f, const Sizes& sizes, const Operand& y, const Operand& x, const Scalars& scalars) {
  using T = compute_t<S>;
  using V = Lanes<T>;
  const auto run = [&](auto formula) { map<S>(sizes, y, x, formula); };
  switch (f) {
    case Unary::neg: return run([](const V& v) HWY_ATTR { return -v; });
    case Unary::abs: return run([](const V& v) HWY_ATTR { return abs(v); });
    case Unary::clamp: {
      const T low = bound<T>(scalars.first);
      const T high = bound<T>(scalars.second);
      return run([low, high](const V& v) HWY_ATTR { return at_most(high, at_least(low, v)); });
    }
    case Unary::exp: return run([](const V& v) HWY_ATTR { return exp(v); });
    case Unary::log: return run([](const V& v) HWY_ATTR { return log(v); });
    case Unary::sqrt: return run([](const V& v) HWY_ATTR { return sqrt(v); });
    case Unary::rsqrt: return run([](const V& v) HWY_ATTR { return T(1) / sqrt(v); });
    case Unary::pow: return power<S>(sizes, y, x, scalars.first);
    case Unary::tanh: return run([](const V& v) HWY_ATTR { return tanh(v); });
    case Unary::sigmoid: return run([](const V& v) HWY_ATTR { return sigmoid(v); });
    case Unary::erf: return run([](const V& v) HWY_ATTR { return erf(v); });
    case Unary::relu: return run([](const V& v) HWY_ATTR { return zero_where(v <= broadcast(T(0)), v); });
    case Unary::silu: return run([](const V& v) HWY_ATTR { return v * sigmoid(v); });
    case Unary::gelu: return run([](const V& v) HWY_ATTR { return v * normal(v).distribution; });
    case Unary::gelu_tanh: return run([](const V& v) HWY_ATTR { return v * sigmoid(GeluTanh<T>::twice_u(v)); });
  }
}

/// dy where low < x < high, else 0. A side that is open has no bound to lie on.
template <class S>
void clamp_backward(const Sizes& sizes, const Operand& dx, const Operand& saved, const Operand& gradient,
                    const Scalars& scalars) {
  using T = compute_t<S>;
  using V = Lanes<T>;
  const T low = static_cast<T>(scalars.first);
  const T high = static_cast<T>(scalars.second);
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const bool below_is_open = low == -kInfinity;
  const bool above_is_open = high == kInfinity;
  map<S>(sizes, dx, saved, gradient, [=](const V& x, const V& dy) HWY_ATTR {
    const V least = broadcast(low);
    const V most = broadcast(high);
    const auto above_low = below_is_open ? least <= x : least < x;
    const auto below_high = above_is_open ? x <= most : x < most;
    return select(above_low & below_high, dy, broadcast(T(0)));
  });
}

/// Each line is dy f'(x), in terms of x or of y = f(x).
template <class S>
void backward(Unary f, const Sizes& sizes, const Operand& dx, const Operand& saved, const Operand& gradient,
              const Scalars& scalars) {
  using T = compute_t<S>;
  using V = Lanes<T>;
  const auto run = [&](auto formula) { map<S>(sizes, dx, saved, gradient, formula); };
  switch (f) {
    case Unary::sqrt: return run([](const V& y, const V& dy) HWY_ATTR { return dy / (y + y); });
    case Unary::rsqrt: return run([](const V& y, const V& dy) HWY_ATTR { return T(-0.5) * dy * (y * y * y); });
    case Unary::tanh: return run([](const V& y, const V& dy) HWY_ATTR { return dy * (T(1) - y * y); });
    case Unary::sigmoid: return run([](const V& y, const V& dy) HWY_ATTR { return dy * (y * (T(1) - y)); });
    case Unary::relu: return run([](const V& y, const V& dy) HWY_ATTR { return zero_where(y <= broadcast(T(0)), dy); });
    case Unary::abs:  // a product, so that a gradient of NaN stays one where the slope is 0
      return run([](const V& x, const V& dy) HWY_ATTR {
        const V zero = broadcast(T(0));
        const V one = broadcast(T(1));
        return dy * (zero_where(x <= zero, one) - zero_where(zero <= x, one));
      });
    case Unary::erf:
      return run([](const V& x, const V& dy) HWY_ATTR {
        return dy * T(1.12837916709551257390) * exp(-x * x);  // 2 / sqrt(pi)
      });
    case Unary::silu:
      return run([](const V& x, const V& dy) HWY_ATTR {
        const Sigmoid<T> gate = sigmoid_and_slope(x);
        return dy * (gate.value + x * gate.slope);
      });
    case Unary::gelu:
      return run([](const V& x, const V& dy) HWY_ATTR {
        const Normal<T> at = normal(x);
        return dy * (at.distribution + x * at.density);
      });
    case Unary::gelu_tanh:
      return run([](const V& x, const V& dy) HWY_ATTR {
        const Sigmoid<T> gate = sigmoid_and_slope(GeluTanh<T>::twice_u(x));
        return dy * (gate.value + x * gate.slope * GeluTanh<T>::slope(x));
      });
    case Unary::clamp: return clamp_backward<S>(sizes, dx, saved, gradient, scalars);
    case Unary::neg:
    case Unary::exp:
    case Unary::log:
    case Unary::pow: fail("unary_backward", "function {} has no kernel of its own", static_cast<int>(f));
  }
}

}  // namespace

void unary(Unary f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& x, const Scalars& scalars) {
  dispatch_numeric("unary", dtype, [&](auto tag) {
    using T = decltype(tag);
    if constexpr (std::is_floating_point_v<compute_t<T>>) {
      unary_floating<T>(f, sizes, y, x, scalars);
    } else {
      unary_integers<T>(f, sizes, y, x, scalars);
    }
  });
}

void unary_backward(Unary f, DType dtype, const Sizes& sizes, const Operand& dx, const Operand& saved,
                    const Operand& dy, const Scalars& scalars) {
  dispatch_any_floating("unary_backward", dtype,
                        [&](auto tag) { backward<decltype(tag)>(f, sizes, dx, saved, dy, scalars); });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

HWY_EXPORT(unary);
void unary(Unary f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& x, const Scalars& scalars) {
  NORMA_SIMD_BEST(unary)(f, dtype, sizes, y, x, scalars);
}

HWY_EXPORT(unary_backward);
void unary_backward(Unary f, DType dtype, const Sizes& sizes, const Operand& dx, const Operand& saved,
                    const Operand& dy, const Scalars& scalars) {
  NORMA_SIMD_BEST(unary_backward)(f, dtype, sizes, dx, saved, dy, scalars);
}

}  // namespace norma::kernels::cpu
#endif

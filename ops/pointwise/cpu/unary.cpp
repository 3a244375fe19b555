#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pointwise/cpu/unary.cpp"
#include "core/simd/foreach_target.h"

#include "ops/pointwise/cpu/loops.h"
#include "ops/pointwise/cpu/pointwise_kernels.h"
#include "ops/pointwise/vector_math.h"

#include <cmath>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

namespace {

namespace vm = vector_math;

/// Constants of gelu_tanh: u(x) = kScale (x + kCubic x^3), gelu = x (1 + tanh u) / 2 = x sigmoid(2 u).
template <class T>
struct GeluTanh {
  static constexpr T kScale = T(0.79788456080286535588);  // sqrt(2 / pi)
  static constexpr T kCubic = T(0.044715);

  static T twice_u(T x) { return T(2) * kScale * x * (T(1) + kCubic * x * x); }
  /// d(2 u)/dx
  static T slope(T x) { return T(2) * kScale * (T(1) + T(3) * kCubic * x * x); }
};

template <class S>
void power(const Sizes& sizes, const Operand& y, const Operand& x, double exponent) {
  using T = compute_t<S>;
  // The usual exponents cost a few multiplications; std::pow costs a call for each element.
  if (exponent == 2) {
    return map<S, S>(sizes, y, x, [](T v) { return v * v; });
  }
  if (exponent == 3) {
    return map<S, S>(sizes, y, x, [](T v) { return v * v * v; });
  }
  if (exponent == -1) {
    return map<S, S>(sizes, y, x, [](T v) { return T(1) / v; });
  }
  if (exponent == 0.5) {
    return map<S, S>(sizes, y, x, [](T v) { return std::sqrt(v); });
  }
  if (exponent == -0.5) {
    return map<S, S>(sizes, y, x, [](T v) { return T(1) / std::sqrt(v); });
  }
  const T e = static_cast<T>(exponent);
  map<S, S>(sizes, y, x, [e](T v) { return std::pow(v, e); });
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

/// The functions that integers have too.
template <class S>
void unary_numeric(Unary f, const Sizes& sizes, const Operand& y, const Operand& x, const Scalars& scalars) {
  using T = compute_t<S>;
  switch (f) {
    case Unary::neg:
      if constexpr (std::is_integral_v<T>) {  // unsigned: the smallest integer wraps around to itself
        using U = std::make_unsigned_t<T>;
        return map<U, U>(sizes, y, x, [](U v) { return U(0) - v; });
      } else {
        return map<S, S>(sizes, y, x, [](T v) { return -v; });
      }
    case Unary::abs:
      if constexpr (std::is_integral_v<T>) {
        using U = std::make_unsigned_t<T>;
        return map<U, U>(sizes, y, x, [](U v) { return static_cast<T>(v) < 0 ? U(0) - v : v; });
      } else {
        return map<S, S>(sizes, y, x, [](T v) { return std::fabs(v); });
      }
    case Unary::clamp: {
      const T low = bound<T>(scalars.first);
      const T high = bound<T>(scalars.second);
      // Written so that NaN stays: no comparison with it holds.
      return map<S, S>(sizes, y, x, [low, high](T v) {
        const T raised = v < low ? low : v;
        return raised > high ? high : raised;
      });
    }
    default: fail("unary", "function {} has no integer form", static_cast<int>(f));
  }
}

template <class S>
void unary_floating(Unary f, const Sizes& sizes, const Operand& y, const Operand& x, const Scalars& scalars) {
  using T = compute_t<S>;
  switch (f) {
    case Unary::exp: return map<S, S>(sizes, y, x, [](T v) { return vm::exp(v); });
    case Unary::log: return map<S, S>(sizes, y, x, [](T v) { return vm::log(v); });
    case Unary::sqrt: return map<S, S>(sizes, y, x, [](T v) { return std::sqrt(v); });
    case Unary::rsqrt: return map<S, S>(sizes, y, x, [](T v) { return T(1) / std::sqrt(v); });
    case Unary::pow: return power<S>(sizes, y, x, scalars.first);
    case Unary::tanh: return map<S, S>(sizes, y, x, [](T v) { return vm::tanh(v); });
    case Unary::sigmoid: return map<S, S>(sizes, y, x, [](T v) { return vm::sigmoid(v); });
    case Unary::erf: return map<S, S>(sizes, y, x, [](T v) { return vm::erf(v); });
    case Unary::relu: return map<S, S>(sizes, y, x, [](T v) { return v <= T(0) ? T(0) : v; });
    case Unary::silu: return map<S, S>(sizes, y, x, [](T v) { return v * vm::sigmoid(v); });
    case Unary::gelu: return map<S, S>(sizes, y, x, [](T v) { return v * vm::normal(v).distribution; });
    case Unary::gelu_tanh: return map<S, S>(sizes, y, x, [](T v) { return v * vm::sigmoid(GeluTanh<T>::twice_u(v)); });
    case Unary::neg:
    case Unary::abs:
    case Unary::clamp: return unary_numeric<S>(f, sizes, y, x, scalars);
  }
}

/// Each line is dy f'(x), in terms of x or of y = f(x).
template <class S>
void backward(Unary f, const Sizes& sizes, const Operand& dx, const Operand& saved, const Operand& gradient,
              const Scalars& scalars) {
  using T = compute_t<S>;
  const auto run = [&](auto formula) { map<S, S, S>(sizes, dx, saved, gradient, formula); };
  switch (f) {
    case Unary::sqrt: return run([](T y, T dy) { return dy / (y + y); });
    case Unary::rsqrt: return run([](T y, T dy) { return T(-0.5) * dy * (y * y * y); });
    case Unary::tanh: return run([](T y, T dy) { return dy * (T(1) - y * y); });
    case Unary::sigmoid: return run([](T y, T dy) { return dy * (y * (T(1) - y)); });
    case Unary::relu: return run([](T y, T dy) { return y <= T(0) ? T(0) : dy; });
    case Unary::abs:  // a product, so that a gradient of NaN stays one where the slope is 0
      return run([](T x, T dy) { return dy * (x > T(0) ? T(1) : (x < T(0) ? T(-1) : T(0))); });
    case Unary::erf:
      return run([](T x, T dy) { return dy * T(1.12837916709551257390) * vm::exp(-x * x); });  // 2 / sqrt(pi)
    case Unary::silu:
      return run([](T x, T dy) {
        const vm::Sigmoid<T> s(x);
        return dy * (s.value + x * s.slope);
      });
    case Unary::gelu:
      return run([](T x, T dy) {
        const auto normal = vm::normal(x);
        return dy * (normal.distribution + x * normal.density);
      });
    case Unary::gelu_tanh:
      return run([](T x, T dy) {
        const vm::Sigmoid<T> gate(GeluTanh<T>::twice_u(x));
        return dy * (gate.value + x * gate.slope * GeluTanh<T>::slope(x));
      });
    case Unary::clamp: {
      const T low = static_cast<T>(scalars.first);
      const T high = static_cast<T>(scalars.second);
      // An open side has no bound to lie on.
      constexpr T kInfinity = std::numeric_limits<T>::infinity();
      const bool below_is_open = low == -kInfinity;
      const bool above_is_open = high == kInfinity;
      return run([=](T x, T dy) {
        const bool above_low = x > low || (below_is_open && x == low);
        const bool below_high = x < high || (above_is_open && x == high);
        return above_low && below_high ? dy : T(0);
      });
    }
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
      unary_numeric<T>(f, sizes, y, x, scalars);
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

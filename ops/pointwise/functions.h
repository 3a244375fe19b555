// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_OPS_POINTWISE_FUNCTIONS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_OPS_POINTWISE_FUNCTIONS_H
#undef NORMA_OPS_POINTWISE_FUNCTIONS_H
#else
#define NORMA_OPS_POINTWISE_FUNCTIONS_H
#endif

#include "ops/pointwise/kernels.h"

#include <limits>
#include <type_traits>

// The formulas of this family. A value V is a vector of core/simd for the CPU, or one number T if core/cuda/kernel.h
// has defined NORMA_BACKEND.

#ifdef NORMA_BACKEND
#include "core/cuda/math.h"
#define NORMA_FORMULA NORMA_DEVICE
namespace norma::kernels::NORMA_BACKEND {
#else
#include "core/simd/math.h"
#define NORMA_FORMULA HWY_INLINE
HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {
using namespace simd::HWY_NAMESPACE;
#endif

/// gelu_tanh: u(x) = kScale (x + kCubic x^3), gelu = x (1 + tanh u) / 2 = x sigmoid(2 u).
template <class T>
struct GeluTanh {
  static constexpr T kScale = T(0.79788456080286535588);  // sqrt(2 / pi)
  static constexpr T kCubic = T(0.044715);

  template <class V>
  static NORMA_FORMULA V twice_u(const V& x) {
    return T(2) * kScale * x * (T(1) + kCubic * x * x);
  }
  /// d(2 u)/dx
  template <class V>
  static NORMA_FORMULA V slope(const V& x) {
    return T(2) * kScale * (T(1) + T(3) * kCubic * x * x);
  }
};

/// y = f(x) in numbers T, a floating type. Scalars describes `first` and `second`.
template <Unary f, class T>
struct UnaryFunction {
  T first = 0;
  T second = 0;

  template <class V>
  NORMA_FORMULA V operator()(const V& x) const {
    if constexpr (f == Unary::neg) {
      return -x;
    } else if constexpr (f == Unary::abs) {
      return abs(x);
    } else if constexpr (f == Unary::clamp) {
      return at_most(second, at_least(first, x));
    } else if constexpr (f == Unary::exp) {
      return exp(x);
    } else if constexpr (f == Unary::log) {
      return log(x);
    } else if constexpr (f == Unary::sqrt) {
      return sqrt(x);
    } else if constexpr (f == Unary::rsqrt) {
      return T(1) / sqrt(x);
    } else if constexpr (f == Unary::pow) {
      return pow(x, first);
    } else if constexpr (f == Unary::tanh) {
      return tanh(x);
    } else if constexpr (f == Unary::sigmoid) {
      return sigmoid(x);
    } else if constexpr (f == Unary::erf) {
      return erf(x);
    } else if constexpr (f == Unary::relu) {
      return zero_where(x <= broadcast(T(0)), x);
    } else if constexpr (f == Unary::silu) {
      return x * sigmoid(x);
    } else if constexpr (f == Unary::gelu) {
      return x * normal(x).distribution;
    } else {
      static_assert(f == Unary::gelu_tanh);
      return x * sigmoid(GeluTanh<T>::twice_u(x));
    }
  }
};

/// y = x^exponent by multiplications: std::pow costs many times as much.
template <int exponent, class T>
struct SmallPower {
  template <class V>
  NORMA_FORMULA V operator()(const V& x) const {
    if constexpr (exponent == 2) {
      return x * x;
    } else if constexpr (exponent == 3) {
      return x * x * x;
    } else {
      static_assert(exponent == -1);
      return T(1) / x;
    }
  }
};

/// dx = dy f'(x), in terms of x or of y = f(x): see kernel_saves_output().
template <Unary f, class T>
struct UnaryDerivative {
  T low = 0;  ///< of clamp
  T high = 0;

  template <class V>
  NORMA_FORMULA V operator()(const V& saved, const V& dy) const {
    const V& x = saved;
    const V& y = saved;
    if constexpr (f == Unary::sqrt) {
      return dy / (y + y);
    } else if constexpr (f == Unary::rsqrt) {
      return T(-0.5) * dy * (y * y * y);
    } else if constexpr (f == Unary::tanh) {
      return dy * (T(1) - y * y);
    } else if constexpr (f == Unary::sigmoid) {
      return dy * (y * (T(1) - y));
    } else if constexpr (f == Unary::relu) {
      return zero_where(y <= broadcast(T(0)), dy);
    } else if constexpr (f == Unary::abs) {  // a product, so that a gradient of NaN stays one where the slope is 0
      const V zero = broadcast(T(0));
      const V one = broadcast(T(1));
      return dy * (zero_where(x <= zero, one) - zero_where(zero <= x, one));
    } else if constexpr (f == Unary::erf) {
      return dy * T(1.12837916709551257390) * exp(-x * x);  // 2 / sqrt(pi)
    } else if constexpr (f == Unary::silu) {
      const auto gate = sigmoid_and_slope(x);
      return dy * (gate.value + x * gate.slope);
    } else if constexpr (f == Unary::gelu) {
      const auto at = normal(x);
      return dy * (at.distribution + x * at.density);
    } else if constexpr (f == Unary::gelu_tanh) {
      const auto gate = sigmoid_and_slope(GeluTanh<T>::twice_u(x));
      return dy * (gate.value + x * gate.slope * GeluTanh<T>::slope(x));
    } else {
      static_assert(f == Unary::clamp);
      // dy where low < x < high, else 0. An open side has no bound for x to lie on.
      constexpr T kInfinity = std::numeric_limits<T>::infinity();
      const V least = broadcast(low);
      const V most = broadcast(high);
      const auto above_low = low == -kInfinity ? least <= x : least < x;
      const auto below_high = high == kInfinity ? x <= most : x < most;
      return select(above_low & below_high, dy, broadcast(T(0)));
    }
  }
};

/// y = f(a, b) in numbers T, a floating type.
template <Binary f, class T>
struct BinaryFunction {
  template <class V>
  NORMA_FORMULA V operator()(const V& a, const V& b) const {
    if constexpr (f == Binary::add) {
      return a + b;
    } else if constexpr (f == Binary::sub) {
      return a - b;
    } else if constexpr (f == Binary::mul) {
      return a * b;
    } else if constexpr (f == Binary::div) {
      return a / b;
    } else if constexpr (f == Binary::maximum) {  // NaN if either is NaN
      return select((b < a) | is_nan(a), a, b);
    } else {
      static_assert(f == Binary::pow);
      return pow(a, b);
    }
  }
};

// --- by name --------------------------------------------------------------------------------------------------------

/// Calls g(function) with the function object that computes f in numbers T.
template <class T, class G>
void with_unary_function(Unary f, const Scalars& scalars, G&& g) {
  switch (f) {
    case Unary::neg: return g(UnaryFunction<Unary::neg, T>{});
    case Unary::abs: return g(UnaryFunction<Unary::abs, T>{});
    case Unary::clamp:
      return g(UnaryFunction<Unary::clamp, T>{static_cast<T>(scalars.first), static_cast<T>(scalars.second)});
    case Unary::exp: return g(UnaryFunction<Unary::exp, T>{});
    case Unary::log: return g(UnaryFunction<Unary::log, T>{});
    case Unary::sqrt: return g(UnaryFunction<Unary::sqrt, T>{});
    case Unary::rsqrt: return g(UnaryFunction<Unary::rsqrt, T>{});
    case Unary::tanh: return g(UnaryFunction<Unary::tanh, T>{});
    case Unary::sigmoid: return g(UnaryFunction<Unary::sigmoid, T>{});
    case Unary::erf: return g(UnaryFunction<Unary::erf, T>{});
    case Unary::relu: return g(UnaryFunction<Unary::relu, T>{});
    case Unary::silu: return g(UnaryFunction<Unary::silu, T>{});
    case Unary::gelu: return g(UnaryFunction<Unary::gelu, T>{});
    case Unary::gelu_tanh: return g(UnaryFunction<Unary::gelu_tanh, T>{});
    case Unary::pow:
      return scalars.first == 2      ? g(SmallPower<2, T>{})
             : scalars.first == 3    ? g(SmallPower<3, T>{})
             : scalars.first == -1   ? g(SmallPower<-1, T>{})
             : scalars.first == 0.5  ? g(UnaryFunction<Unary::sqrt, T>{})
             : scalars.first == -0.5 ? g(UnaryFunction<Unary::rsqrt, T>{})
                                     : g(UnaryFunction<Unary::pow, T>{static_cast<T>(scalars.first)});
  }
}

/// Calls g(function) with the function object that computes dy f'(x) in numbers T.
template <class T, class G>
void with_unary_derivative(Unary f, const Scalars& scalars, G&& g) {
  switch (f) {
    case Unary::sqrt: return g(UnaryDerivative<Unary::sqrt, T>{});
    case Unary::rsqrt: return g(UnaryDerivative<Unary::rsqrt, T>{});
    case Unary::tanh: return g(UnaryDerivative<Unary::tanh, T>{});
    case Unary::sigmoid: return g(UnaryDerivative<Unary::sigmoid, T>{});
    case Unary::relu: return g(UnaryDerivative<Unary::relu, T>{});
    case Unary::abs: return g(UnaryDerivative<Unary::abs, T>{});
    case Unary::erf: return g(UnaryDerivative<Unary::erf, T>{});
    case Unary::silu: return g(UnaryDerivative<Unary::silu, T>{});
    case Unary::gelu: return g(UnaryDerivative<Unary::gelu, T>{});
    case Unary::gelu_tanh: return g(UnaryDerivative<Unary::gelu_tanh, T>{});
    case Unary::clamp:
      return g(UnaryDerivative<Unary::clamp, T>{static_cast<T>(scalars.first), static_cast<T>(scalars.second)});
    case Unary::neg:
    case Unary::exp:
    case Unary::log:
    case Unary::pow: fail("unary_backward", "function {} has no kernel of its own", static_cast<int>(f));
  }
}

/// Calls g(function) with the function object that computes f in numbers T.
template <class T, class G>
void with_binary_function(Binary f, G&& g) {
  switch (f) {
    case Binary::add: return g(BinaryFunction<Binary::add, T>{});
    case Binary::sub: return g(BinaryFunction<Binary::sub, T>{});
    case Binary::mul: return g(BinaryFunction<Binary::mul, T>{});
    case Binary::div: return g(BinaryFunction<Binary::div, T>{});
    case Binary::maximum: return g(BinaryFunction<Binary::maximum, T>{});
    case Binary::pow: return g(BinaryFunction<Binary::pow, T>{});
  }
}

#ifdef NORMA_BACKEND
}  // namespace norma::kernels::NORMA_BACKEND
#else
}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#undef NORMA_FORMULA

#endif

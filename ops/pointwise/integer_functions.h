#pragma once

#include "ops/pointwise/kernels.h"

#include <limits>
#include <type_traits>

// The formulas of this family for integers I, for the CPU and for CUDA. They wrap around as in NumPy and PyTorch;
// signed overflow would be undefined.

namespace norma::kernels {

/// A bound of clamp: a value outside the range of I becomes the nearer end.
template <class I>
constexpr I integer_bound(double value) {
  // The largest int64 is no double: compare with 2^63 and 2^31, which are.
  const double limit = -static_cast<double>(std::numeric_limits<I>::min());
  if (value >= limit) {
    return std::numeric_limits<I>::max();
  }
  if (value <= -limit) {
    return std::numeric_limits<I>::min();
  }
  return static_cast<I>(value);
}

/// y = f(x). `low` and `high` are the bounds of clamp.
template <Unary f, class I>
struct IntegerUnaryFunction {
  I low = 0;
  I high = 0;

  constexpr I operator()(I x) const {
    using U = std::make_unsigned_t<I>;
    if constexpr (f == Unary::neg) {
      return static_cast<I>(U(0) - static_cast<U>(x));
    } else if constexpr (f == Unary::abs) {  // the smallest integer wraps around to itself
      return x < 0 ? static_cast<I>(U(0) - static_cast<U>(x)) : x;
    } else {
      static_assert(f == Unary::clamp);
      const I raised = x < low ? low : x;
      return raised > high ? high : raised;
    }
  }
};

/// y = f(a, b)
template <Binary f, class I>
struct IntegerBinaryFunction {
  constexpr I operator()(I a, I b) const {
    using U = std::make_unsigned_t<I>;
    if constexpr (f == Binary::add) {
      return static_cast<I>(static_cast<U>(a) + static_cast<U>(b));
    } else if constexpr (f == Binary::sub) {
      return static_cast<I>(static_cast<U>(a) - static_cast<U>(b));
    } else if constexpr (f == Binary::mul) {
      return static_cast<I>(static_cast<U>(a) * static_cast<U>(b));
    } else {
      static_assert(f == Binary::maximum);
      return a > b ? a : b;
    }
  }
};

/// Calls g(function) with the function object that computes f in integers I.
template <class I, class G>
void with_integer_unary_function(Unary f, const Scalars& scalars, G&& g) {
  switch (f) {
    case Unary::neg: return g(IntegerUnaryFunction<Unary::neg, I>{});
    case Unary::abs: return g(IntegerUnaryFunction<Unary::abs, I>{});
    case Unary::clamp:
      return g(
          IntegerUnaryFunction<Unary::clamp, I>{integer_bound<I>(scalars.first), integer_bound<I>(scalars.second)});
    default: fail("unary", "function {} has no integer form", static_cast<int>(f));
  }
}
template <class I, class G>
void with_integer_binary_function(Binary f, G&& g) {
  switch (f) {
    case Binary::add: return g(IntegerBinaryFunction<Binary::add, I>{});
    case Binary::sub: return g(IntegerBinaryFunction<Binary::sub, I>{});
    case Binary::mul: return g(IntegerBinaryFunction<Binary::mul, I>{});
    case Binary::maximum: return g(IntegerBinaryFunction<Binary::maximum, I>{});
    case Binary::div:
    case Binary::pow: fail("binary", "function {} has no integer form", static_cast<int>(f));
  }
}

}  // namespace norma::kernels

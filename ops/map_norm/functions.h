#pragma once

#include "core/multiply_add.h"
#include "ops/map_norm/kernels.h"
#include "ops/pointwise/vector_math.h"

#include <cstdint>

// The functions of MapFunction, one element at a time, for loops that the compiler turns into vector code: no branches,
// only selections. n(k, i) is number k for element i.

namespace norma::kernels {

/// What an element adds to the sums of its map.
template <class T>
struct Terms {
  T a = 0;
  T b = 0;
  T c = 0;
  T d = 0;
  T e = 0;
};

/// z = x * rstd * weight + bias;  y = max(z, tau). Where both are equal, each gets half of dy, as in maximum().
struct ThresholdMap {
  static constexpr int kNumbers = 4;
  static constexpr int kSums = 3;

  template <class T, class N>
  static T before(T x, const N& n, int64_t i) {
    return multiply_add(x * n(0, i), n(1, i), n(2, i));
  }
  template <class T>
  static T passes(T z, T tau) {
    const T above = z <= tau ? T(0) : T(1);
    return z == tau ? T(0.5) : above;
  }
  template <class T, class N>
  static T value(T x, const N& n, int64_t i) {
    const T z = before(x, n, i);
    const T tau = n(3, i);
    return z < tau || tau != tau ? tau : z;
  }
  /// Terms of the gradients of bias, weight and tau.
  template <class T, class N>
  static Terms<T> terms(T dy, T x, const N& n, int64_t i) {
    const T pass = passes(before(x, n, i), n(3, i));
    const T dz = dy * pass;
    return {.a = dz, .b = dz * (x * n(0, i)), .c = dy * (T(1) - pass)};
  }
  template <class T, class N>
  static T slope(T dy, T x, const N& n, int64_t i) {
    return (dy * passes(before(x, n, i), n(3, i))) * n(1, i) * n(0, i);
  }
};

/// y = x * rstd * weight * sigmoid(v * x) + bias
struct GateMap {
  static constexpr int kNumbers = 4;
  static constexpr int kSums = 3;

  template <class T, class N>
  static T value(T x, const N& n, int64_t i) {
    return multiply_add((x * n(1, i)) * vector_math::sigmoid(n(0, i) * x), n(2, i), n(3, i));
  }
  /// Terms of the gradients of bias, weight and v; the last lacks its factor weight.
  template <class T, class N>
  static Terms<T> terms(T dy, T x, const N& n, int64_t i) {
    const T gate = vector_math::sigmoid(n(0, i) * x);
    const T scaled = dy * (x * n(1, i));
    return {.a = dy, .b = scaled * gate, .c = scaled * (x * (gate * (T(1) - gate)))};
  }
  template <class T, class N>
  static T slope(T dy, T x, const N& n, int64_t i) {
    const T z = n(0, i) * x;
    const T gate = vector_math::sigmoid(z);
    return dy * n(2, i) * n(1, i) * (gate + z * (gate * (T(1) - gate)));
  }
};

/// y = x / max(v * x + root of the map, root of the batch) * weight + bias. Where both are equal, each gets half.
struct EvoMap {
  static constexpr int kNumbers = 5;
  static constexpr int kSums = 5;

  template <class T>
  struct Denominator {
    T value;
    T right;  ///< how much of its gradient goes to v * x + root of the map
  };
  template <class T, class N>
  static Denominator<T> denominator(T x, const N& n, int64_t i) {
    const T right = multiply_add(n(0, i), x, n(1, i));
    const T left = n(2, i);
    const T above = right < left ? T(0) : T(1);
    return {.value = right < left || left != left ? left : right, .right = right == left ? T(0.5) : above};
  }
  template <class T, class N>
  static T value(T x, const N& n, int64_t i) {
    return multiply_add(x / denominator(x, n, i).value, n(3, i), n(4, i));
  }
  /// Terms of the gradients of bias and weight, and of v, the root of the map and that of the batch; these three lack
  /// their factor -weight.
  template <class T, class N>
  static Terms<T> terms(T dy, T x, const N& n, int64_t i) {
    const auto d = denominator(x, n, i);
    const T inverse = T(1) / d.value;
    const T h = x * inverse;
    const T by_root = dy * h * inverse;
    return {.a = dy, .b = dy * h, .c = d.right * (dy * h * h), .d = d.right * by_root, .e = (T(1) - d.right) * by_root};
  }
  template <class T, class N>
  static T slope(T dy, T x, const N& n, int64_t i) {
    const auto d = denominator(x, n, i);
    const T inverse = T(1) / d.value;
    return dy * n(3, i) * inverse * (T(1) - d.right * (n(0, i) * (x * inverse)));
  }
};

/// y = x * scale + shift. The third number only keeps a sum in the range of T.
struct AffineMap {
  static constexpr int kNumbers = 3;
  static constexpr int kSums = 2;

  template <class T, class N>
  static T value(T x, const N& n, int64_t i) {
    return multiply_add(x, n(0, i), n(1, i));
  }
  /// Terms of the gradients of shift, and of scale times the third number.
  template <class T, class N>
  static Terms<T> terms(T dy, T x, const N& n, int64_t i) {
    return {.a = dy, .b = dy * (x * n(2, i))};
  }
  template <class T, class N>
  static T slope(T dy, T, const N& n, int64_t i) {
    return dy * n(0, i);
  }
};

/// y = tanh(alpha * x) * weight + bias
struct TanhMap {
  static constexpr int kNumbers = 3;
  static constexpr int kSums = 3;

  template <class T, class N>
  static T value(T x, const N& n, int64_t i) {
    return multiply_add(vector_math::tanh(n(0, i) * x), n(1, i), n(2, i));
  }
  /// Terms of the gradients of bias, weight and alpha; the last lacks its factor weight.
  template <class T, class N>
  static Terms<T> terms(T dy, T x, const N& n, int64_t i) {
    const T t = vector_math::tanh(n(0, i) * x);
    return {.a = dy, .b = dy * t, .c = dy * (x * (T(1) - t * t))};
  }
  template <class T, class N>
  static T slope(T dy, T x, const N& n, int64_t i) {
    const T t = vector_math::tanh(n(0, i) * x);
    return dy * n(1, i) * (n(0, i) * (T(1) - t * t));
  }
};

/// y = max(f(x), 0)
template <class F>
struct WithRelu {
  static constexpr int kNumbers = F::kNumbers;
  static constexpr int kSums = F::kSums;

  template <class T, class N>
  static T value(T x, const N& n, int64_t i) {
    const T z = F::value(x, n, i);
    return z <= T(0) ? T(0) : z;
  }
  template <class T, class N>
  static T gradient(T dy, T x, const N& n, int64_t i) {
    return F::value(x, n, i) <= T(0) ? T(0) : dy;
  }
  template <class T, class N>
  static Terms<T> terms(T dy, T x, const N& n, int64_t i) {
    return F::terms(gradient(dy, x, n, i), x, n, i);
  }
  template <class T, class N>
  static T slope(T dy, T x, const N& n, int64_t i) {
    return F::slope(gradient(dy, x, n, i), x, n, i);
  }
};

/// Calls g(F{}) for the function of a problem.
template <class G>
void with_map_function(const MapProblem& problem, G&& g) {
  const auto call = [&]<class F>(F f) { problem.relu ? g(WithRelu<F>{}) : g(f); };
  switch (problem.function) {
    case MapFunction::threshold: return call(ThresholdMap{});
    case MapFunction::gate: return call(GateMap{});
    case MapFunction::evo: return call(EvoMap{});
    case MapFunction::affine: return call(AffineMap{});
    case MapFunction::tanh: return call(TanhMap{});
  }
}

}  // namespace norma::kernels

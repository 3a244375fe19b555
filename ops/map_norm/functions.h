// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_OPS_MAP_NORM_FUNCTIONS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_OPS_MAP_NORM_FUNCTIONS_H
#undef NORMA_OPS_MAP_NORM_FUNCTIONS_H
#else
#define NORMA_OPS_MAP_NORM_FUNCTIONS_H
#endif

#include "ops/map_norm/kernels.h"

// The functions of MapFunction. A value V is a vector of core/simd, whose functions argument-dependent lookup finds. If
// core/cuda/kernel.h or another header has defined NORMA_BACKEND, V is a plain number; select, zero_where,
// multiply_add, sigmoid, exp, tanh and erf are then declared before, as in core/cuda/math.h. n(k) is number k of the
// map.

#ifdef NORMA_BACKEND
#define NORMA_FORMULA NORMA_DEVICE
namespace norma::kernels::NORMA_BACKEND {
#else
#include <hwy/highway.h>
#define NORMA_FORMULA HWY_INLINE
HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {
#endif

/// The terms that an element adds to the sums of its map.
template <class V>
struct Terms {
  V a{};
  V b{};
  V c{};
  V d{};
  V e{};
};

/// The results of backward for dy and x; loops that want one of the two compute no more than that.
template <class V>
struct Derivatives {
  Terms<V> terms;
  V slope;  ///< dy * f'(x)
};

/// The larger of a and b; NaN if either is NaN.
template <class V>
NORMA_FORMULA V larger(const V& a, const V& b) {
  return select(a < b, b, select(b <= b, a, b));
}
/// The share of dy that goes to a in larger(a, b): half if both are equal, as in maximum().
template <class V>
NORMA_FORMULA V share_of_first(const V& a, const V& b, const V& dy) {
  return zero_where(a < b, select(a <= b, 0.5F * dy, dy));
}

/// z = x * rstd * weight + bias;  y = max(z, tau)
struct ThresholdMap {
  static constexpr MapFunction kFunction = MapFunction::threshold;

  template <class V, class N>
  static NORMA_FORMULA V before(const V& x, const N& n) {
    return multiply_add(x * n(0), n(1), n(2));
  }
  template <class V, class N>
  static NORMA_FORMULA V value(const V& x, const N& n) {
    return larger(before(x, n), n(3));
  }
  /// Terms of the gradients of bias, weight and tau.
  template <class V, class N>
  static NORMA_FORMULA Derivatives<V> derivatives(const V& dy, const V& x, const N& n) {
    const V dz = share_of_first(before(x, n), n(3), dy);
    return {.terms = {.a = dz, .b = dz * (x * n(0)), .c = dy - dz}, .slope = dz * n(1) * n(0)};
  }
};

/// y = x * rstd * weight * sigmoid(v * x) + bias
struct GateMap {
  static constexpr MapFunction kFunction = MapFunction::gate;

  template <class V, class N>
  static NORMA_FORMULA V value(const V& x, const N& n) {
    return multiply_add((x * n(1)) * sigmoid(n(0) * x), n(2), n(3));
  }
  /// Terms of the gradients of bias, weight and v; the last lacks its factor weight.
  template <class V, class N>
  static NORMA_FORMULA Derivatives<V> derivatives(const V& dy, const V& x, const N& n) {
    const V z = n(0) * x;
    const V gate = sigmoid(z);
    const V gate_slope = gate * (1 - gate);
    const V scaled = dy * (x * n(1));
    return {.terms = {.a = dy, .b = scaled * gate, .c = scaled * (x * gate_slope)},
            .slope = dy * n(2) * n(1) * (gate + z * gate_slope)};
  }
};

/// y = x / max(v * x + root of the map, root of the batch) * weight + bias
struct EvoMap {
  static constexpr MapFunction kFunction = MapFunction::evo;

  template <class V, class N>
  static NORMA_FORMULA V value(const V& x, const N& n) {
    return multiply_add(x / larger(multiply_add(n(0), x, n(1)), n(2)), n(3), n(4));
  }
  /// Terms of the gradients of bias and weight, and of v, the root of the map and that of the batch; these three lack
  /// their factor -weight.
  template <class V, class N>
  static NORMA_FORMULA Derivatives<V> derivatives(const V& dy, const V& x, const N& n) {
    const V of_map = multiply_add(n(0), x, n(1));
    const V of_batch = n(2);
    const V inverse = 1 / larger(of_map, of_batch);
    const V h = x * inverse;
    const V by_root = dy * h * inverse;
    const V by_map_root = share_of_first(of_map, of_batch, by_root);
    return {.terms = {.a = dy,
                      .b = dy * h,
                      .c = share_of_first(of_map, of_batch, dy * h * h),
                      .d = by_map_root,
                      .e = by_root - by_map_root},
            .slope = dy * n(3) * inverse * (1 - share_of_first(of_map, of_batch, n(0) * h))};
  }
};

/// y = x * scale + shift. The third number only keeps a sum in the range of T.
struct AffineMap {
  static constexpr MapFunction kFunction = MapFunction::affine;

  template <class V, class N>
  static NORMA_FORMULA V value(const V& x, const N& n) {
    return multiply_add(x, n(0), n(1));
  }
  /// Terms of the gradients of shift, and of scale times the third number.
  template <class V, class N>
  static NORMA_FORMULA Derivatives<V> derivatives(const V& dy, const V& x, const N& n) {
    return {.terms = {.a = dy, .b = dy * (x * n(2))}, .slope = dy * n(0)};
  }
};

/// y = tanh(alpha * x) * weight + bias
struct TanhMap {
  static constexpr MapFunction kFunction = MapFunction::tanh;

  template <class V, class N>
  static NORMA_FORMULA V value(const V& x, const N& n) {
    return multiply_add(tanh(n(0) * x), n(1), n(2));
  }
  /// Terms of the gradients of bias, weight and alpha; the last lacks its factor weight.
  template <class V, class N>
  static NORMA_FORMULA Derivatives<V> derivatives(const V& dy, const V& x, const N& n) {
    const V t = tanh(n(0) * x);
    const V t_slope = 1 - t * t;
    return {.terms = {.a = dy, .b = dy * t, .c = dy * (x * t_slope)}, .slope = dy * n(1) * (n(0) * t_slope)};
  }
};

/// y = erf(alpha * x + shift) * weight + bias
struct ErfMap {
  static constexpr MapFunction kFunction = MapFunction::erf;

  template <class V, class N>
  static NORMA_FORMULA V value(const V& x, const N& n) {
    return multiply_add(erf(multiply_add(x, n(0), n(1))), n(2), n(3));
  }
  /// erf'(z) = 2 / sqrt(pi) * e^(-z²). Terms of the gradients of bias, weight, shift and alpha; the last two lack their
  /// factor 2 / sqrt(pi) * weight.
  template <class V, class N>
  static NORMA_FORMULA Derivatives<V> derivatives(const V& dy, const V& x, const N& n) {
    const V z = multiply_add(x, n(0), n(1));
    const V bell = exp(-(z * z));
    return {.terms = {.a = dy, .b = dy * erf(z), .c = dy * bell, .d = dy * (x * bell)}, .slope = dy * (n(4) * bell)};
  }
};

/// y = max(f(x), 0)
template <class F>
struct WithRelu {
  static constexpr MapFunction kFunction = F::kFunction;

  template <class V, class N>
  static NORMA_FORMULA V value(const V& x, const N& n) {
    const V z = F::value(x, n);
    return zero_where(z <= 0, z);
  }
  template <class V, class N>
  static NORMA_FORMULA Derivatives<V> derivatives(const V& dy, const V& x, const N& n) {
    return F::derivatives(zero_where(F::value(x, n) <= 0, dy), x, n);
  }
};

/// Calls g(F{}) for a function.
template <class G>
void with_function(MapFunction function, G&& g) {
  switch (function) {
    case MapFunction::threshold: return g(ThresholdMap{});
    case MapFunction::gate: return g(GateMap{});
    case MapFunction::evo: return g(EvoMap{});
    case MapFunction::affine: return g(AffineMap{});
    case MapFunction::tanh: return g(TanhMap{});
    case MapFunction::erf: return g(ErfMap{});
  }
}
/// Calls g for the function of a problem, with its relu.
template <class G>
void with_map_function(const MapProblem& problem, G&& g) {
  with_function(problem.function, [&]<class F>(F f) { problem.relu ? g(WithRelu<F>{}) : g(f); });
}

#ifdef NORMA_BACKEND
}  // namespace norma::kernels::NORMA_BACKEND
#else
}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#undef NORMA_FORMULA

#endif

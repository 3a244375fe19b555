// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_OPS_REDUCE_OPERATIONS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_OPS_REDUCE_OPERATIONS_H
#undef NORMA_OPS_REDUCE_OPERATIONS_H
#else
#define NORMA_OPS_REDUCE_OPERATIONS_H
#endif

#include "ops/reduce/kernels.h"

#include <cstdint>
#include <limits>
#include <type_traits>

// The operations of reductions. An accumulator V is a vector of core/simd or one of its numbers for the CPU, or one
// number if core/cuda/kernel.h has defined NORMA_BACKEND.

#ifdef NORMA_BACKEND
#include "core/cuda/math.h"
#define NORMA_FORMULA NORMA_DEVICE
namespace norma::kernels::NORMA_BACKEND {
#else
#include "core/simd/memory.h"
#define NORMA_FORMULA HWY_INLINE
HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {
using namespace simd::HWY_NAMESPACE;

template <class T>
T select(bool condition, T yes, T no) {
  return condition ? yes : no;
}
#endif

/// The type of sums: float64 for floating dtypes, the dtype itself otherwise.
template <class S>
using sum_t = std::conditional_t<std::is_floating_point_v<compute_t<S>>, double, S>;

/// a + b, where integers wrap around.
template <class T>
NORMA_FORMULA T sum_of(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  } else {
    return a + b;
  }
}
template <class T>
NORMA_FORMULA T product_of(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
}
#ifndef NORMA_BACKEND
template <class R, int n>
HWY_INLINE Parts<R, n> sum_of(const Parts<R, n>& a, const Parts<R, n>& b) {
  return a + b;
}
template <class R, int n>
HWY_INLINE Parts<R, n> product_of(const Parts<R, n>& a, const Parts<R, n>& b) {
  using T = hn::TFromV<R>;
  if constexpr (std::is_integral_v<T>) {  // not every target has such an instruction
    T left[kLanes<T>];
    T right[kLanes<T>];
    store(static_cast<T*>(left), a, Whole{});
    store(static_cast<T*>(right), b, Whole{});
    for (int lane = 0; lane < kLanes<T>; ++lane) {
      left[lane] = product_of(left[lane], right[lane]);
    }
    return load(static_cast<const T*>(left), Whole{});
  } else {
    return a * b;
  }
}
#endif

/// Each operation names its accumulator (Number), its start, the step for an element (take), and the step that makes
/// one result of two parts (merge). kAdds: the result may be scaled.
template <class S>
struct Sum {
  using Number = sum_t<S>;
  static constexpr Number kStart = 0;
  static constexpr bool kAdds = true;
  template <class V>
  static NORMA_FORMULA V take(const V& a, const V& x, const V& /*mean*/) {
    return sum_of(a, x);
  }
  template <class V>
  static NORMA_FORMULA V merge(const V& a, const V& b) {
    return sum_of(a, b);
  }
};

template <class S>
struct SquaredDifferences {
  using Number = double;
  static constexpr Number kStart = 0;
  static constexpr bool kAdds = true;
  template <class V>
  static NORMA_FORMULA V take(const V& a, const V& x, const V& mean) {
    const V difference = x - mean;
    return multiply_add(difference, difference, a);
  }
  template <class V>
  static NORMA_FORMULA V merge(const V& a, const V& b) {
    return a + b;
  }
};

template <class S>
struct Product {
  using Number = sum_t<S>;
  static constexpr Number kStart = 1;
  static constexpr bool kAdds = false;
  template <class V>
  static NORMA_FORMULA V take(const V& a, const V& x, const V& /*mean*/) {
    return product_of(a, x);
  }
  template <class V>
  static NORMA_FORMULA V merge(const V& a, const V& b) {
    return product_of(a, b);
  }
};

template <class S>
struct Max {
  using Number = compute_t<S>;
  static constexpr Number kStart = std::is_floating_point_v<Number> ? -std::numeric_limits<Number>::infinity()
                                                                    : std::numeric_limits<Number>::lowest();
  static constexpr bool kAdds = false;
  template <class V>
  static NORMA_FORMULA V take(const V& a, const V& x, const V& /*mean*/) {
    return merge(a, x);
  }
  /// NaN if either is NaN.
  template <class V>
  static NORMA_FORMULA V merge(const V& a, const V& b) {
    const V larger = select(a < b, b, a);
    if constexpr (std::is_floating_point_v<Number>) {
      return select(b <= b, larger, b);
    } else {
      return larger;
    }
  }
};

/// An operation over elements S with results Y.
template <class Operation, class S, class Y>
struct Folded {};

/// Calls g(Folded<Operation, S, Y>{}) for a function and the dtype of x.
template <class G>
void with_fold(Fold f, DType dtype, G&& g) {
  switch (f) {
    case Fold::sum: return dispatch_numeric("sum", dtype, [&]<class S>(S) { g(Folded<Sum<S>, S, S>{}); });
    case Fold::sum_in_double:
      return dispatch_floating("var", dtype, [&]<class S>(S) { g(Folded<Sum<S>, S, double>{}); });
    case Fold::squared_differences:
      return dispatch_floating("var", dtype, [&]<class S>(S) { g(Folded<SquaredDifferences<S>, S, S>{}); });
    case Fold::product: return dispatch_numeric("prod", dtype, [&]<class S>(S) { g(Folded<Product<S>, S, S>{}); });
    case Fold::max: return dispatch_numeric("max", dtype, [&]<class S>(S) { g(Folded<Max<S>, S, S>{}); });
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

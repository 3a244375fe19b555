// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_OPS_REDUCE_CPU_OPERATIONS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_OPS_REDUCE_CPU_OPERATIONS_H
#undef NORMA_OPS_REDUCE_CPU_OPERATIONS_H
#else
#define NORMA_OPS_REDUCE_CPU_OPERATIONS_H
#endif

#include "core/simd/memory.h"
#include "core/simd/sums.h"

#include <cstdint>
#include <limits>
#include <type_traits>

// What is done to the elements: V is a vector of accumulators, or one of them.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

using namespace simd::HWY_NAMESPACE;

/// What is summed in: float64 for floating dtypes, the dtype itself otherwise.
template <class S>
using sum_t = std::conditional_t<std::is_floating_point_v<compute_t<S>>, double, S>;

template <class T>
T select(bool condition, T yes, T no) {
  return condition ? yes : no;
}

/// Integers wrap around.
template <class T>
T product_of(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return a * b;
  }
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

template <class S>
struct Sum {
  using Number = sum_t<S>;
  static constexpr Number kStart = 0;
  static constexpr bool kAdds = true;
  template <class V>
  static HWY_INLINE V take(const V& a, const V& x, const V& /*mean*/) {
    return a + x;
  }
  template <class V>
  static HWY_INLINE V merge(const V& a, const V& b) {
    return a + b;
  }
};

template <class S>
struct SquaredDifferences {
  using Number = double;
  static constexpr Number kStart = 0;
  static constexpr bool kAdds = true;
  template <class V>
  static HWY_INLINE V take(const V& a, const V& x, const V& mean) {
    const V difference = x - mean;
    return multiply_add(difference, difference, a);
  }
  template <class V>
  static HWY_INLINE V merge(const V& a, const V& b) {
    return a + b;
  }
};

template <class S>
struct Product {
  using Number = sum_t<S>;
  static constexpr Number kStart = 1;
  static constexpr bool kAdds = false;
  template <class V>
  static HWY_INLINE V take(const V& a, const V& x, const V& /*mean*/) {
    return product_of(a, x);
  }
  template <class V>
  static HWY_INLINE V merge(const V& a, const V& b) {
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
  static HWY_INLINE V take(const V& a, const V& x, const V& /*mean*/) {
    return merge(a, x);
  }
  /// NaN where one is.
  template <class V>
  static HWY_INLINE V merge(const V& a, const V& b) {
    const V larger = select(a < b, b, a);
    if constexpr (std::is_floating_point_v<Number>) {
      return select(b <= b, larger, b);
    } else {
      return larger;
    }
  }
};

// --- vectors of accumulators ----------------------------------------------------------------------------------------

/// Elements that are taken in at a time.
template <class S>
inline constexpr int kStep = kLanes<compute_t<S>>;

/// kStep accumulators.
template <class Number, class S>
using Accumulators = Parts<hn::Vec<Tag<Number>>, kStep<S> / kRegisterLanes<Number>>;

/// The elements as numbers to accumulate.
template <class Number, class S, class Part>
HWY_INLINE Accumulators<Number, S> load_as(const S* from, Part part) {
  if constexpr (std::is_same_v<Number, compute_t<S>>) {
    return load(from, part);
  } else {
    return promote(load(from, part));
  }
}
template <class Number, class S>
HWY_INLINE Accumulators<Number, S> same(Number value) {
  return broadcast<Number, kStep<S> / kRegisterLanes<Number>>(value);
}
template <class S, class Number>
HWY_INLINE Accumulators<Number, S> load_accumulators(const Number* from) {
  return simd::HWY_NAMESPACE::detail::load<Number, kStep<S> / kRegisterLanes<Number>>(from);
}
template <class Number, class R, int n>
HWY_INLINE void store_accumulators(Number* to, const Parts<R, n>& accumulators) {
  simd::HWY_NAMESPACE::detail::store(to, accumulators);
}

/// The first few lanes of `taken`, and the others of `before`.
template <class R, int n>
HWY_INLINE Parts<R, n> only(Whole, const Parts<R, n>& taken, const Parts<R, n>& /*before*/) {
  return taken;
}
template <class R, int n>
HWY_INLINE Parts<R, n> only(First part, const Parts<R, n>& taken, const Parts<R, n>& before) {
  return select(first_lanes<hn::TFromV<R>, n>(part.count), taken, before);
}

/// All lanes merged, by halves.
template <class Op, class R, int n>
HWY_INLINE typename Op::Number merge_lanes(const Parts<R, n>& v) {
  using Number = typename Op::Number;
  if constexpr (Op::kAdds && std::is_same_v<Number, double>) {
    if constexpr (kLanes<Number> < n * kRegisterLanes<Number>) {
      return add_lanes(v.low + v.high);
    } else {
      return add_lanes(v);
    }
  } else {
    constexpr int kCount = n * kRegisterLanes<Number>;
    Number numbers[kCount];
    store_accumulators(static_cast<Number*>(numbers), v);
    for (int width = kCount / 2; width > 0; width /= 2) {
      for (int lane = 0; lane < width; ++lane) {
        numbers[lane] = Op::merge(numbers[lane], numbers[lane + width]);
      }
    }
    return numbers[0];
  }
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

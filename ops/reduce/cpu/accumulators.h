// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_OPS_REDUCE_CPU_ACCUMULATORS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_OPS_REDUCE_CPU_ACCUMULATORS_H
#undef NORMA_OPS_REDUCE_CPU_ACCUMULATORS_H
#else
#define NORMA_OPS_REDUCE_CPU_ACCUMULATORS_H
#endif

#include "core/simd/memory.h"
#include "core/simd/sums.h"
#include "ops/reduce/operations.h"

#include <cstdint>
#include <type_traits>

// The accumulators of operations.h as vectors.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

using namespace simd::HWY_NAMESPACE;

/// The number of elements taken in at a time.
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

/// The first few lanes from `taken`, the others from `before`.
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

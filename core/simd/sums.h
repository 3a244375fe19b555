// Sums over the lanes of vectors, always in the same order.

// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_CORE_SIMD_SUMS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_CORE_SIMD_SUMS_H
#undef NORMA_CORE_SIMD_SUMS_H
#else
#define NORMA_CORE_SIMD_SUMS_H
#endif

#include "core/simd/lanes.h"

#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace norma::simd::HWY_NAMESPACE {

namespace detail {

/// Lanes i and i + 8 of floats are added up as they are, the rest in double, by halves.
HWY_INLINE Lanes<double> half_sums(const Lanes<double>& v) {
  return v;
}
HWY_INLINE Lanes<double> half_sums(const Lanes<float>& v) {
  constexpr Tag<double> kDouble;
#if HWY_CAP_GE512
  const hn::Half<Tag<float>> half;
  return {hn::PromoteTo(kDouble, hn::Add(hn::LowerHalf(half, v.only), hn::UpperHalf(half, v.only)))};
#elif HWY_CAP_GE256
  const hn::Half<Tag<float>> half;
  const auto sums = hn::Add(v.low.only, v.high.only);
  return {{hn::PromoteTo(kDouble, hn::LowerHalf(half, sums))}, {hn::PromoteTo(kDouble, hn::UpperHalf(half, sums))}};
#else
  const hn::Half<Tag<float>> half;
  const auto promote = [&](hn::Vec<Tag<float>> sums) HWY_ATTR {
    return Parts<hn::Vec<Tag<double>>, 2>{{hn::PromoteTo(kDouble, hn::LowerHalf(half, sums))},
                                          {hn::PromoteTo(kDouble, hn::UpperHalf(half, sums))}};
  };
  return {promote(hn::Add(v.low.low.only, v.high.low.only)), promote(hn::Add(v.low.high.only, v.high.high.only))};
#endif
}

/// Numbers 0 and 1 of the sum of the quarters of a vector.
template <class R, int n>
HWY_INLINE hn::Vec<hn::Full128<double>> add_quarters(const Parts<R, n>& eight) {
  if constexpr (n > 1) {
    const auto half = eight.low + eight.high;
    return add_quarters(half);
  } else {
    if constexpr (hn::MaxLanes(hn::DFromV<R>{}) == 2) {
      return eight.only;
    } else {
      const hn::Half<hn::DFromV<R>> half;
      const auto sum = hn::Add(hn::LowerHalf(half, eight.only), hn::UpperHalf(half, eight.only));
      return add_quarters(Parts<std::remove_const_t<decltype(sum)>, 1>{sum});
    }
  }
}

}  // namespace detail

struct TwoSums {
  double first;
  double second;
};

/// The sums of the lanes of a and of b.
template <class R, int n>
HWY_INLINE TwoSums add_lanes(const Parts<R, n>& a, const Parts<R, n>& b) {
  using V = hn::Vec<Tag<double>>;
  const auto neighbours = by_register(
      [](V x, V y) HWY_ATTR {
        return hn::Add(hn::InterleaveLower(Tag<double>{}, x, y), hn::InterleaveUpper(Tag<double>{}, x, y));
      },
      detail::half_sums(a), detail::half_sums(b));
  const auto two = detail::add_quarters(neighbours);
  const hn::Full128<double> d;
  return {hn::GetLane(two), hn::GetLane(hn::InterleaveUpper(d, two, two))};
}
template <class R, int n>
HWY_INLINE double add_lanes(const Parts<R, n>& v) {
  const auto two = detail::add_quarters(detail::half_sums(v));
  const hn::Full128<double> d;
  return hn::GetLane(two) + hn::GetLane(hn::InterleaveUpper(d, two, two));
}

}  // namespace norma::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

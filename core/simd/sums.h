// Conversions to double, and sums over the lanes of vectors in an order that is always the same.

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

/// The two numbers that remain of a vector when its halves are added up again and again.
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

/// The same numbers, in order, in twice as many registers.
template <class R, int n>
HWY_INLINE Parts<hn::Vec<Tag<double>>, 2 * n> promote(const Parts<R, n>& v) {
  if constexpr (n > 1) {
    return {promote(v.low), promote(v.high)};
  } else {
    constexpr Tag<double> kDouble;
    const hn::Half<Tag<float>> half;
    return {{hn::PromoteTo(kDouble, hn::LowerHalf(half, v.only))},
            {hn::PromoteTo(kDouble, hn::UpperHalf(half, v.only))}};
  }
}

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

/// The same numbers in double: floats take twice as many registers.
template <class R, int n>
HWY_INLINE auto to_double(const Parts<R, n>& v) {
  using V = hn::Vec<Tag<double>>;
  if constexpr (std::is_same_v<R, V>) {
    return v;
  } else if constexpr (n > 1) {
    return Parts<V, 2 * n>{to_double(v.low), to_double(v.high)};
  } else {
    constexpr hn::Half<Tag<float>> kHalf;
    return Parts<V, 2>{{hn::PromoteTo(Tag<double>{}, hn::LowerHalf(kHalf, v.only))},
                       {hn::PromoteTo(Tag<double>{}, hn::UpperHalf(kHalf, v.only))}};
  }
}
/// The inverse: doubles rounded to T.
template <class T, class R, int n>
HWY_INLINE auto round_to(const Parts<R, n>& v) {
  if constexpr (std::is_same_v<T, double>) {
    return v;
  } else if constexpr (n > 2) {
    return Parts<hn::Vec<Tag<float>>, n / 2>{round_to<T>(v.low), round_to<T>(v.high)};
  } else {
    constexpr hn::Half<Tag<float>> kHalf;
    return Parts<hn::Vec<Tag<float>>, 1>{
        hn::Combine(Tag<float>{}, hn::DemoteTo(kHalf, v.high.only), hn::DemoteTo(kHalf, v.low.only))};
  }
}

/// A sum of vectors of T that is carried in double.
template <class T>
struct DoubleSum {
  using Doubles = decltype(to_double(Lanes<T>{}));
  Doubles lanes = {};

  HWY_INLINE double total() const {
    if constexpr (std::is_same_v<T, double>) {
      return add_lanes(lanes);
    } else {
      return add_lanes(lanes.low + lanes.high);
    }
  }
};

}  // namespace norma::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "data/augment/normal_kernels.cpp"
#include "core/simd/foreach_target.h"

#include "data/augment/normal_kernels.h"

#include "core/random.h"
#include "core/simd/targets.h"

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <numbers>

HWY_BEFORE_NAMESPACE();
namespace norma::data::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using Doubles = hn::ScalableTag<double>;
using Floats = hn::Rebind<float, Doubles>;
constexpr auto kLanes = static_cast<size_t>(hn::MaxLanes(Doubles{}));

/// Rounds to float. True iff all numbers that are so near, and so the exact ones, are rounded to the same.
template <class V>
HWY_INLINE bool store_rounded(V value, V error, float* to) {
  const auto low = hn::DemoteTo(Floats{}, hn::Sub(value, error));
  hn::StoreU(low, Floats{}, to);
  return hn::AllTrue(Floats{}, hn::Eq(low, hn::DemoteTo(Floats{}, hn::Add(value, error))));
}

}  // namespace

void normal_pairs(std::span<const UniformPair> pairs, float* to) {
  constexpr Doubles tag;
  // Highway's functions are exact to 2^-50 and better. The bound is wide, and still few numbers are computed again.
  constexpr double kError = 0x1p-44;
  for (size_t i = 0; i < pairs.size(); i += kLanes) {
    const auto block = pairs.subspan(i, std::min(kLanes, pairs.size() - i));
    std::array<double, kLanes> first{};
    std::array<double, kLanes> second{};
    for (size_t k = 0; k < block.size(); ++k) {
      first[k] = 1 - block[k].first;
      second[k] = 2.0 * std::numbers::pi * block[k].second;
    }
    std::fill(first.begin() + static_cast<std::ptrdiff_t>(block.size()), first.end(), 0.5);
    const auto radius = hn::Sqrt(hn::Mul(hn::Set(tag, -2.0), hn::Log(tag, hn::LoadU(tag, first.data()))));
    const auto angle = hn::LoadU(tag, second.data());
    const auto error = hn::Mul(radius, hn::Set(tag, kError));
    std::array<float, kLanes> cosines;
    std::array<float, kLanes> sines;
    const bool are_exact = store_rounded(hn::Mul(radius, hn::Cos(tag, angle)), error, cosines.data());
    const bool are_exact_too = store_rounded(hn::Mul(radius, hn::Sin(tag, angle)), error, sines.data());
    for (size_t k = 0; k < block.size(); ++k, to += 2) {
      to[0] = cosines[k];
      to[1] = sines[k];
      if (!are_exact || !are_exact_too) {
        const auto numbers = box_muller(block[k].first, block[k].second);
        to[0] = static_cast<float>(numbers[0]);
        to[1] = static_cast<float>(numbers[1]);
      }
    }
  }
}

}  // namespace norma::data::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::data {

HWY_EXPORT(normal_pairs);
void normal_pairs(std::span<const UniformPair> pairs, float* to) {
  NORMA_SIMD_BEST(normal_pairs)(pairs, to);
}

}  // namespace norma::data
#endif

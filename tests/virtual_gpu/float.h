#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

// What PTX says of floating-point numbers that C++ leaves open.

namespace virtual_gpu {

template <class F>
struct FloatBits;
template <>
struct FloatBits<float> {
  using type = uint32_t;
  static constexpr uint32_t kSign = 0x80000000;
  static constexpr uint32_t kExponent = 0x7f800000;
  static constexpr uint32_t kNan = 0x7fffffff;
};
template <>
struct FloatBits<double> {
  using type = uint64_t;
  static constexpr uint64_t kSign = 0x8000000000000000;
  static constexpr uint64_t kExponent = 0x7ff0000000000000;
  static constexpr uint64_t kNan = 0xfff8000000000000;
};

/// Arithmetic of float gives one NaN, 0x7fffffff; that of double keeps the operand's.
template <class F>
[[gnu::always_inline]] inline F canonical(F x) {
  if constexpr (std::is_same_v<F, float>) {
    return x != x ? std::bit_cast<float>(FloatBits<float>::kNan) : x;
  } else {
    return x;
  }
}

/// ".ftz": a subnormal number counts as a zero of its sign.
template <bool kFlush, class F>
[[gnu::always_inline]] inline F flushed(F x) {
  if constexpr (kFlush) {
    using Bits = FloatBits<F>;
    const auto bits = std::bit_cast<typename Bits::type>(x);
    return std::bit_cast<F>((bits & Bits::kExponent) == 0 ? bits & Bits::kSign : bits);
  } else {
    return x;
  }
}

/// The next float above or below. `x` is a number.
[[gnu::always_inline]] inline float float_below(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t next = (bits & 0x7fffffff) == 0 ? 0x80000001 : (bits >> 31) != 0 ? bits + 1 : bits - 1;
  return std::bit_cast<float>(next);
}
[[gnu::always_inline]] inline float float_above(float x) {
  return -float_below(-x);
}

/// How an exact result becomes one of fewer digits: to the nearest (".rn"), towards zero, down, up.
enum class Rounding : uint8_t { kNearest, kZero, kDown, kUp };

/// The float of `sum + error`, where `sum` is the nearest double to it.
template <Rounding kRounding>
[[gnu::always_inline]] inline float rounded(double sum, double error) {
  const float nearest = static_cast<float>(sum);
  const double wide = static_cast<double>(nearest);
  const bool above = wide > sum || (wide == sum && error < 0);  // the float lies above the exact value
  const bool below = wide < sum || (wide == sum && error > 0);
  const bool number = std::abs(sum) <= std::numeric_limits<double>::max();
  bool down = false;
  bool up = false;
  if constexpr (kRounding == Rounding::kDown) {
    down = above;
  } else if constexpr (kRounding == Rounding::kUp) {
    up = below;
  } else if constexpr (kRounding == Rounding::kZero) {
    down = above && sum > 0;
    up = below && sum < 0;
  }
  return number && down ? float_below(nearest) : number && up ? float_above(nearest) : nearest;
}

}  // namespace virtual_gpu

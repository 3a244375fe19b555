#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

// Half precision and bfloat16, without branches, so that lanes become vectors.

namespace virtual_gpu {

[[gnu::always_inline]] inline float float_of_bfloat16(uint16_t bits) {
  return std::bit_cast<float>(uint32_t{bits} << 16U);
}

/// Rounded to the nearest, ties to even; NaN becomes 0x7fff.
[[gnu::always_inline]] inline uint16_t bfloat16_of_float(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16U) & 1U)) >> 16U;
  return static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded);
}

/// NaN becomes 0x7fffffff.
[[gnu::always_inline]] inline float float_of_half(uint16_t half) {
  const uint32_t sign = uint32_t{half & 0x8000U} << 16U;
  const uint32_t magnitude = half & 0x7fffU;
  const uint32_t normal = (magnitude << 13U) + (112U << 23U);
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24F;
  const uint32_t infinite = magnitude > 0x7c00 ? 0x7fffffffU : 0x7f800000U | sign;
  const uint32_t number = magnitude < 0x400 ? std::bit_cast<uint32_t>(subnormal) | sign : normal | sign;
  return std::bit_cast<float>(magnitude >= 0x7c00 ? infinite : number);
}

/// Rounded to the nearest, ties to even; NaN becomes 0x7fff.
[[gnu::always_inline]] inline uint16_t half_of_float(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 16U) & 0x8000U;
  const uint32_t magnitude = bits & 0x7fffffffU;
  // A normal half: thirteen digits are rounded away. What overflows becomes infinity by itself up to 65520 and more.
  const uint32_t normal = (magnitude + 0xfff + ((magnitude >> 13U) & 1U) - (112U << 23U)) >> 13U;
  // A subnormal half is a multiple of 2^-24: adding 0.5 rounds to it.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - std::bit_cast<uint32_t>(0.5F);
  const uint32_t number = magnitude < 0x38800000 ? subnormal : magnitude >= 0x477ff000 ? 0x7c00U : normal;
  return static_cast<uint16_t>(magnitude > 0x7f800000 ? 0x7fffU : number | sign);
}

}  // namespace virtual_gpu

#pragma once

#include <bit>
#include <cstdint>

namespace norma {

// Both conversions are made of selections, no branches, so that loops over them become vector code. A loop writes
// elements through assign() (dtype.h): GCC 12 makes no vector code of copies of these structs.

/// IEEE binary16 storage type. Arithmetic happens in float32; conversion rounds to nearest even.
struct float16 {
  uint16_t bits = 0;

  float16() = default;
  explicit float16(float value);
  explicit operator float() const;
};

/// The upper half of a float32. Arithmetic happens in float32; conversion rounds to nearest even.
struct bfloat16 {
  uint16_t bits = 0;

  bfloat16() = default;
  explicit bfloat16(float value) {
    const auto word = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (word + 0x7FFFU + ((word >> 16) & 1U)) >> 16;
    // A NaN must stay a NaN: rounding could carry it into infinity.
    bits = static_cast<uint16_t>((word & 0x7FFFFFFFU) > 0x7F800000U ? (word >> 16) | 0x0040U : rounded);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

inline float16::float16(float value) {
  const auto word = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (word >> 16) & 0x8000U;
  const uint32_t magnitude = word & 0x7FFFFFFFU;
  // Below 2^-14: adding 0.5 leaves the 24-bit result's last place at 2^-24, the subnormal step of binary16.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000U;
  const uint32_t normal = (magnitude - 0x38000000U + 0x0FFFU + ((magnitude >> 13) & 1U)) >> 13;
  const uint32_t finite = magnitude < 0x38800000U ? subnormal : normal;
  const uint32_t number = magnitude >= 0x477FF000U ? 0x7C00U : finite;  // rounding to 65536 or more gives infinity
  bits = static_cast<uint16_t>(sign | (magnitude > 0x7F800000U ? 0x7E00U : number));
}

inline float16::operator float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t magnitude = bits & 0x7FFFU;
  const auto subnormal = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24F);
  const uint32_t normal = (magnitude << 13) + 0x38000000U;
  const uint32_t finite = magnitude < 0x0400U ? subnormal : normal;
  return std::bit_cast<float>(sign | (magnitude >= 0x7C00U ? 0x7F800000U | (magnitude << 13) : finite));
}

}  // namespace norma

#pragma once

#include <bit>
#include <cstdint>

namespace norma {

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
    // A NaN must stay a NaN: rounding could carry it into infinity.
    bits = value != value ? static_cast<uint16_t>((word >> 16) | 0x0040U)
                          : static_cast<uint16_t>((word + 0x7FFFU + ((word >> 16) & 1U)) >> 16);
  }
  explicit operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
};

inline float16::float16(float value) {
  const auto word = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((word >> 16) & 0x8000U);
  const uint32_t magnitude = word & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {  // NaN
    bits = sign | 0x7E00U;
  } else if (magnitude >= 0x477FF000U) {  // rounds to 65536 or more
    bits = sign | 0x7C00U;
  } else if (magnitude < 0x38800000U) {  // below 2^-14: subnormal or zero
    // Adding 0.5 leaves the 24-bit result's last place at 2^-24, the subnormal step of binary16.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    bits = static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000U));
  } else {
    const uint32_t odd = (magnitude >> 13) & 1U;
    bits = static_cast<uint16_t>(sign | ((magnitude - 0x38000000U + 0x0FFFU + odd) >> 13));
  }
}

inline float16::operator float() const {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000U) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1FU;
  const uint32_t fraction = bits & 0x3FFU;
  if (exponent == 0) {  // value = fraction * 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
  }
  const uint32_t word =
      exponent == 0x1FU ? 0x7F800000U | (fraction << 13) : ((exponent + 112U) << 23) | (fraction << 13);
  return std::bit_cast<float>(word | sign);
}

}  // namespace norma

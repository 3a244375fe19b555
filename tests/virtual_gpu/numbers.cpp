#include "virtual_gpu/numbers.h"

#include "virtual_gpu/half.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace virtual_gpu {

namespace {

template <class T>
T read(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

template <class T>
void write(std::byte* bytes, T value) {
  std::memcpy(bytes, &value, sizeof(value));
}

/// The float32 next to a double in direction of zero, with its last bit set where the double lies between two. To round
/// it once more, to fewer digits, gives what the double itself rounds to.
float round_to_odd(double value) {
  auto nearest = static_cast<float>(value);
  if (!std::isfinite(value) || static_cast<double>(nearest) == value) {
    return nearest;
  }
  if (std::abs(static_cast<double>(nearest)) > std::abs(value)) {
    nearest = std::nextafter(nearest, 0.0F);
  }
  return std::bit_cast<float>(std::bit_cast<uint32_t>(nearest) | 1U);
}

/// To 10 bits of mantissa, ties away from zero: cvt.rna.tf32.f32.
double to_tf32(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return std::isfinite(value) ? std::bit_cast<float>((bits + 0x1000U) & ~0x1FFFU) : value;
}

/// The bits of splitmix64.
uint64_t scrambled(uint64_t value) {
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ value >> 27) * 0x94D049BB133111EBULL;
  return value ^ value >> 31;
}

}  // namespace

int64_t bytes_of(NumberType type) {
  switch (type) {
    case NumberType::kFloat64: return 8;
    case NumberType::kFloat32: return 4;
    default: return 2;
  }
}

std::string_view name_of(NumberType type) {
  switch (type) {
    case NumberType::kFloat64: return "float64";
    case NumberType::kFloat32: return "float32";
    case NumberType::kFloat16: return "float16";
    default: return "bfloat16";
  }
}

double epsilon_of(NumberType type) {
  switch (type) {
    case NumberType::kFloat64: return 0x1p-52;
    case NumberType::kFloat32: return 0x1p-23;
    case NumberType::kFloat16: return 0x1p-10;
    default: return 0x1p-7;
  }
}

double load(NumberType type, const std::byte* bytes) {
  switch (type) {
    case NumberType::kFloat64: return read<double>(bytes);
    case NumberType::kFloat32: return read<float>(bytes);
    case NumberType::kFloat16: return float_of_half(read<uint16_t>(bytes));
    default: return float_of_bfloat16(read<uint16_t>(bytes));
  }
}

void store(NumberType type, std::byte* bytes, double value) {
  switch (type) {
    case NumberType::kFloat64: write(bytes, value); return;
    case NumberType::kFloat32: write(bytes, static_cast<float>(value)); return;
    case NumberType::kFloat16: write(bytes, half_of_float(round_to_odd(value))); return;
    default: write(bytes, bfloat16_of_float(round_to_odd(value)));
  }
}

double rounded(NumberType type, double value) {
  std::byte bytes[8];
  store(type, bytes, value);
  return load(type, bytes);
}

void round_inputs(InputRounding rounding, std::span<double> values) {
  if (rounding == InputRounding::kNone) {
    return;
  }
  for (double& value : values) {
    value = rounding == InputRounding::kTf32 ? to_tf32(value) : rounded(NumberType::kBfloat16, value);
  }
}

void perturb(std::span<double> values, double units, double epsilon, uint64_t seed) {
  double largest = 0;
  for (const double value : values) {
    largest = std::isfinite(value) ? std::max(largest, std::abs(value)) : largest;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = static_cast<int64_t>(scrambled(seed ^ scrambled(i)));
    const double part = static_cast<double>(bits) / static_cast<double>(std::numeric_limits<int64_t>::max());
    values[i] += part * units * epsilon * largest;
  }
}

}  // namespace virtual_gpu

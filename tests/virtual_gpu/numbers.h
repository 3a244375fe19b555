#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace virtual_gpu {

/// The types of numbers that cuDNN's and cuBLASLt's stand-ins read and write.
enum class NumberType : uint8_t { kFloat64, kFloat32, kFloat16, kBfloat16 };

int64_t bytes_of(NumberType type);
std::string_view name_of(NumberType type);
/// The distance from 1 to the next number.
double epsilon_of(NumberType type);

/// The number at `bytes`, exactly.
double load(NumberType type, const std::byte* bytes);
/// Rounds once, to the nearest number of the type, ties to even.
void store(NumberType type, std::byte* bytes, double value);
/// What store() and load() make of a value.
double rounded(NumberType type, double value);

/// How an engine rounds its inputs before it multiplies them.
enum class InputRounding : uint8_t { kNone, kTf32, kBfloat16 };
void round_inputs(InputRounding rounding, std::span<double> values);

/// Changes each value by at most `units` times `epsilon` times the largest magnitude, by its place and the seed. It
/// stands for the errors of an algorithm that gives other numbers than plain sums.
void perturb(std::span<double> values, double units, double epsilon, uint64_t seed);

}  // namespace virtual_gpu

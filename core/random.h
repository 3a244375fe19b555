#pragma once

#include "core/philox.h"

#include <array>
#include <cstdint>

namespace norma {

/// A float in [0, 1) from the upper 24 bits.
inline float uniform_float(uint32_t bits) {
  return static_cast<float>(bits >> 8) * 0x1p-24F;
}
/// A double in [0, 1) from 53 of 64 bits.
inline double uniform_double(uint32_t high, uint32_t low) {
  const uint64_t bits = (static_cast<uint64_t>(high) << 32) | low;
  return static_cast<double>(bits >> 11) * 0x1p-53;
}
/// Two independent normal numbers from two uniform ones, by Box and Muller.
std::array<double, 2> box_muller(double u1, double u2);

/// A position in a Philox sequence. Not thread-safe: take the numbers, then go parallel.
class Generator {
 public:
  explicit Generator(uint64_t seed = 0) : seed_(seed) {}

  [[nodiscard]] uint64_t seed() const { return seed_; }
  [[nodiscard]] uint64_t offset() const { return offset_; }
  void set_state(uint64_t seed, uint64_t offset) {
    seed_ = seed;
    offset_ = offset;
  }

  /// The offset at which counting begins, in memory of a device, for a recorded step (core/device_graph.h): the numbers
  /// of its ops count from there. Null: from 0. dropout() and drop_path() take it; other ops throw Error.
  [[nodiscard]] const uint64_t* origin() const { return origin_; }
  void set_origin(const uint64_t* origin) { origin_ = origin; }

  /// Takes `count` counters and returns the first: number i of an op is philox(seed, first + i).
  uint64_t reserve(uint64_t count) {
    const uint64_t first = offset_;
    offset_ += count;
    return first;
  }
  /// One number in [0, 2^32).
  uint32_t next() { return philox(seed_, reserve(1))[0]; }
  /// One double in [0, 1).
  double uniform() {
    const auto bits = philox(seed_, reserve(1));
    return uniform_double(bits[0], bits[1]);
  }
  /// One integer in [0, bound), without modulo bias. bound > 0.
  uint64_t below(uint64_t bound);

 private:
  uint64_t seed_;
  uint64_t offset_ = 0;
  const uint64_t* origin_ = nullptr;
};

/// The generator of random ops that are given none. Each thread has its own.
Generator& default_generator();
/// Restarts the default generator at the beginning of stream `seed`.
void manual_seed(uint64_t seed);

}  // namespace norma

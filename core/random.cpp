#include "core/random.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace norma {

std::array<uint32_t, 4> philox(uint64_t seed, uint64_t counter, uint64_t subsequence) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  constexpr int kRounds = 10;

  auto low = [](uint64_t x) { return static_cast<uint32_t>(x); };
  auto high = [](uint64_t x) { return static_cast<uint32_t>(x >> 32); };
  std::array<uint32_t, 4> c{low(counter), high(counter), low(subsequence), high(subsequence)};
  uint32_t key0 = low(seed);
  uint32_t key1 = high(seed);
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * c[0];
    const uint64_t product1 = kMultiplier1 * c[2];
    c = {high(product1) ^ c[1] ^ key0, low(product1), high(product0) ^ c[3] ^ key1, low(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

std::array<double, 2> box_muller(double u1, double u2) {
  // 1 - u1 lies in (0, 1], so that the logarithm is finite.
  const double radius = std::sqrt(-2.0 * std::log(1.0 - u1));
  const double angle = 2.0 * std::numbers::pi * u2;
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

uint64_t Generator::below(uint64_t bound) {
  // Numbers from the last incomplete multiple of `bound` are drawn again.
  const uint64_t limit = std::numeric_limits<uint64_t>::max() - std::numeric_limits<uint64_t>::max() % bound;
  while (true) {
    const auto bits = philox(seed_, reserve(1));
    const uint64_t number = (static_cast<uint64_t>(bits[0]) << 32) | bits[1];
    if (number < limit) {
      return number % bound;
    }
  }
}

Generator& default_generator() {
  thread_local Generator generator;
  return generator;
}

void manual_seed(uint64_t seed) {
  default_generator() = Generator(seed);
}

}  // namespace norma

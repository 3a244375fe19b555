#include "core/random.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace norma {

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

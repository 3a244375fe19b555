#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

namespace norma {

// Random numbers, for the host and for kernels.

/// Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): the four 32-bit numbers at
/// position `counter` of the stream `seed`. A pure function, so any thread may make any part of a sequence.
constexpr std::array<uint32_t, 4> philox(uint64_t seed, uint64_t counter, uint64_t subsequence = 0) {
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

/// The largest number that uniform_() may give: the last T below `high`, and no less than `low`. Rounding a sum in T
/// can reach `high` itself.
template <class T>
T last_of_uniform(double low, double high) {
  const T end = static_cast<T>(high);
  const T below = static_cast<double>(end) < high ? end : std::nextafter(end, -std::numeric_limits<T>::infinity());
  return std::max(below, static_cast<T>(low));
}

}  // namespace norma

#pragma once

#include <array>
#include <cstdint>

namespace norma {

/// philox() of random.h, for the host and for kernels.
constexpr std::array<uint32_t, 4> philox_numbers(uint64_t seed, uint64_t counter, uint64_t subsequence) {
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

}  // namespace norma

#pragma once

#include <cstdint>
#include <cstring>

namespace norma::data {

// A pixel of three channels and the byte behind it, as four numbers that are computed side by side: vectors of the
// compiler (GCC's, which clang has too), so that one line of arithmetic serves all channels. Functions take them by
// reference: their ABI differs with the processor.

using Bytes16 = uint8_t __attribute__((vector_size(16)));
using Ints4 = int32_t __attribute__((vector_size(16)));
using Doubles4 = double __attribute__((vector_size(32)));

/// The four bytes from `from` on. T is Ints4 or Doubles4.
template <class T>
inline void load_pixel(const uint8_t* from, T& pixel) {
  int32_t four = 0;
  std::memcpy(&four, from, sizeof four);
  const Ints4 first = {four, 0, 0, 0};
  const auto bytes = reinterpret_cast<Bytes16>(first);
  // A conversion of four bytes would be one by one. Each gets three zeros behind it: numbers of 32 bits, least byte
  // first.
  const Bytes16 zero = {};
  const Bytes16 spread =
      __builtin_shufflevector(bytes, zero, 0, 16, 16, 16, 1, 16, 16, 16, 2, 16, 16, 16, 3, 16, 16, 16);
  pixel = __builtin_convertvector(reinterpret_cast<Ints4>(spread), T);
}

}  // namespace norma::data

#include "core/multiply_add.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>

namespace {

// Passed by value, as Conv2dOptions{.stride = 2} is.
struct Options {
  std::array<int64_t, 2> stride;
  std::array<int64_t, 2> padding;
};

[[gnu::noinline]] int64_t sum_of_padding(Options options) {
  asm volatile("" : : "r"(&options) : "memory");  // the argument must really be written to memory
  return options.padding[0] + options.padding[1];
}

/// a * b + c of numbers that the compiler does not know.
template <class T>
T product_and_sum(T a, T b, T c) {
  const volatile T unknown[] = {a, b, c};
  return unknown[0] * unknown[1] + unknown[2];
}

/// multiply_add() of vectors, and of the numbers in them.
template <class T, int bytes>
void check_lanes() {
  using V [[gnu::vector_size(bytes)]] = T;
  V a;
  V b;
  V c;
  for (int i = 0; i < static_cast<int>(bytes / sizeof(T)); ++i) {
    a[i] = T(1) + T(i) / T(7);
    b[i] = T(1) / (T(3) + T(i));
    c[i] = -a[i] * b[i];
  }
  const V together = norma::multiply_add(a, b, c);
  for (int i = 0; i < static_cast<int>(bytes / sizeof(T)); ++i) {
    CAPTURE(i);
    CHECK(together[i] == norma::multiply_add(T(a[i]), T(b[i]), T(c[i])));
  }
}

}  // namespace

// (1 + e)² - (1 + 2e) is e² when it is rounded once, and 0 when the product is rounded first.
TEST_CASE("compiler: a product and a sum are rounded twice, wherever they are inlined") {
  CHECK(product_and_sum(1 + 0x1p-30, 1 + 0x1p-30, -(1 + 0x1p-29)) == 0);
  CHECK(product_and_sum(1 + 0x1p-13F, 1 + 0x1p-13F, -(1 + 0x1p-12F)) == 0);
}

TEST_CASE("multiply_add: rounded once where the processor can, the same bits in vectors and in numbers") {
#ifdef __FMA__
  const double once = 1;
#else
  const double once = 0;
#endif
  CHECK(norma::multiply_add(1 + 0x1p-30, 1 + 0x1p-30, -(1 + 0x1p-29)) == once * 0x1p-60);
  CHECK(norma::multiply_add(1 + 0x1p-13F, 1 + 0x1p-13F, -(1 + 0x1p-12F)) == static_cast<float>(once) * 0x1p-26F);
  check_lanes<float, 32>();
  check_lanes<float, 64>();
  check_lanes<double, 32>();
  check_lanes<double, 64>();
}

// GCC 12.2 with AVX-512 and -O2 writes 2, 2, 2, 2; the flags in cmake/room.cmake prevent it.
TEST_CASE("compiler: a struct of constants is copied as it is") {
  CHECK(sum_of_padding({.stride = {2, 2}, .padding = {0, 0}}) == 0);
}

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

}  // namespace

// (1 + e)² - (1 + 2e) is e² when it is rounded once, and 0 when the product is rounded first.
TEST_CASE("compiler: a product and a sum are rounded twice, wherever they are inlined") {
  CHECK(product_and_sum(1 + 0x1p-30, 1 + 0x1p-30, -(1 + 0x1p-29)) == 0);
  CHECK(product_and_sum(1 + 0x1p-13F, 1 + 0x1p-13F, -(1 + 0x1p-12F)) == 0);
}

// GCC 12.2 with AVX-512 and -O2 writes 2, 2, 2, 2; the flags in cmake/room.cmake prevent it.
TEST_CASE("compiler: a struct of constants is copied as it is") {
  CHECK(sum_of_padding({.stride = {2, 2}, .padding = {0, 0}}) == 0);
}

#include "core/allocator.h"
#include "core/buffer.h"
#include "core/factory.h"
#include "core/memory_format.h"
#include "core/strided_loop.h"
#include "tests/error_text.h"

#include <cstdint>
#include <limits>

namespace norma::test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t k2To33 = int64_t{1} << 33;
constexpr int64_t k2To62 = int64_t{1} << 62;

}  // namespace

TEST_CASE("limits: a product of sizes that does not fit is an error, never a smaller number") {
  CHECK(error_of([] {
          Sizes({k2To33, k2To33}).numel();
        }) == "sizes: expected at most 9223372036854775807 elements, got [8589934592, 8589934592]");
  CHECK(error_of([] {
          checked_numel("expand", {k2To62 + 1, 4});
        }) == "expand: sizes: expected at most 9223372036854775807 elements, got [4611686018427387905, 4]");
  CHECK(Sizes({kMax, 1}).numel() == kMax);
  CHECK(Sizes({k2To62, 0}).numel() == 0);
  // Strides of an empty tensor are products of its other sizes.
  CHECK(error_of([] {
          Sizes({0, k2To33, k2To33}).numel();
        }) == "sizes: expected at most 9223372036854775807 elements, got [0, 8589934592, 8589934592]");
}

TEST_CASE("limits: sums and products name the argument and both numbers") {
  CHECK(checked_add("pad", "before", kMax, -1) == kMax - 1);
  CHECK(checked_mul("conv2d", "dilation", k2To33, 4) == k2To33 * 4);
  CHECK(error_of([] { checked_add("pad", "before", 2, kMax); }) ==
        "pad: before: expected at most 9223372036854775807 elements, got 2 + 9223372036854775807");
  CHECK(error_of([] { checked_mul("conv2d", "dilation", kMax, 2); }) ==
        "conv2d: dilation: expected at most 9223372036854775807 elements, got 9223372036854775807 * 2");
}

TEST_CASE("limits: strides and reaches are checked too") {
  CHECK(error_of([] {
          contiguous_strides({2, k2To33, k2To33});
        }) == "contiguous: sizes: expected at most 9223372036854775807 elements, got 8589934592 * 8589934592");
  CHECK(error_of([] {
          channels_last_strides({2, k2To33, k2To33, 1});
        }) == "channels_last: sizes: expected at most 9223372036854775807 elements, got 8589934592 * 8589934592");
  CHECK(error_of([] {
          reach({3, 2}, {k2To62, 1});
        }) == "reach: strides: expected at most 9223372036854775807 elements, got 2 * 4611686018427387904");
  CHECK(error_of([] {
          reach({2, 2}, {kMax, 1});
        }) == "reach: strides: expected at most 9223372036854775807 elements, got 9223372036854775807 + 1");
  CHECK(error_of([] { reach({2}, {kMax}); }) ==
        "reach: strides: expected at most 9223372036854775807 elements, got 9223372036854775807 + 1");
}

TEST_CASE("limits: new tensors whose elements or bytes cannot be counted") {
  const std::string too_many =
      "empty: sizes: expected at most 9223372036854775807 elements, got [8589934592, 8589934592]";
  CHECK(error_of([] { empty({k2To33, k2To33}); }) == too_many);
  CHECK(error_of([] { zeros({k2To33, k2To33}); }) == too_many);
  CHECK(error_of([] { randn({k2To33, k2To33}); }) == too_many);
  CHECK(error_of([] { empty_strided({k2To33, k2To33}, {0, 0}); }) == too_many);
  CHECK(error_of([] {
          zeros({k2To62 + 1, 4});
        }) == "empty: sizes: expected at most 9223372036854775807 elements, got [4611686018427387905, 4]");
  CHECK(error_of([] {
          empty({2, k2To33, k2To33, 1}, {.format = MemoryFormat::channels_last});
        }) == "empty: sizes: expected at most 9223372036854775807 elements, got [2, 8589934592, 8589934592, 1]");
  CHECK(error_of([] { zeros({k2To62}); }) ==
        "empty: sizes: expected at most 9223372036854775807 bytes, got [4611686018427387904] of float32");
  CHECK(error_of([] { arange(kMax); }) ==
        "empty: sizes: expected at most 9223372036854775807 bytes, got [9223372036854775807] of int64");
  CHECK(error_of([] {
          empty_strided({2, 2}, {k2To62, 1}, {.dtype = DType::float64});
        }) == "empty: sizes: expected at most 9223372036854775807 bytes, got [2, 2] of float64");
  CHECK(error_of([] {
          from_vector<float>({}, {k2To33, k2To33});
        }) == "sizes: expected at most 9223372036854775807 elements, got [8589934592, 8589934592]");
}

TEST_CASE("limits: memory that can be counted but not had is an error") {
  CHECK_THROWS_AS(zeros({int64_t{1} << 45}), OutOfMemory);
  CHECK_THROWS_AS(zeros({k2To62}, {.dtype = DType::uint8}), OutOfMemory);
  CHECK_THROWS_AS(zeros({kMax}, {.dtype = DType::uint8}), OutOfMemory);
  CHECK_THROWS_AS(allocator(kCpu).allocate(std::numeric_limits<size_t>::max()), OutOfMemory);
  CHECK_THROWS_AS(Buffer<uint8_t>{kMax}, OutOfMemory);
  CHECK(error_of([] { Buffer<double>(k2To62 / 2 + 1); }).find("buffer: count: expected at most ") == 0);
  CHECK(zeros({3}).to_vector<double>() == std::vector<double>{0, 0, 0});  // the allocator goes on
}

TEST_CASE("limits: aliases never reach out of their storage") {
  const Tensor x = arange(10);
  CHECK(error_of([&] { alias(x, {kMax}, {1}, 1); }).find("tensor: expected a view inside a storage of 10") == 0);
  CHECK(error_of([&] { alias(x, {1}, {1}, kMax); }).find("tensor: expected a view inside a storage of 10") == 0);
  CHECK(error_of([&] {
          alias(x, {k2To33, k2To33}, {0, 0}, 0);
        }) == "tensor: sizes: expected at most 9223372036854775807 elements, got [8589934592, 8589934592]");
  CHECK(error_of([&] { alias(x, {5}, {k2To62}, 0); }) ==
        "tensor: strides: expected at most 9223372036854775807 elements, got 5 * 4611686018427387904");
  CHECK(error_of([&] {
          alias(x, {0, 5}, {1, k2To62}, 0);
        }) == "tensor: strides: expected at most 9223372036854775807 elements, got 5 * 4611686018427387904");
}

TEST_CASE("limits: two operands that together have too many elements") {
  CHECK(error_of([] {
          broadcast_sizes("add", {k2To33, 1}, {1, k2To33});
        }) == "add: sizes: expected at most 9223372036854775807 elements, got [8589934592, 8589934592]");
}

}  // namespace norma::test

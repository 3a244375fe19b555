#include "core/dtype.h"
#include "core/copy.h"
#include "core/factory.h"
#include "tests/support.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace norma;

TEST_CASE("float16: every pattern survives the way through float32") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    float16 half;
    half.bits = static_cast<uint16_t>(bits);
    const auto value = static_cast<float>(half);
    const float16 back(value);
    if (std::isnan(value)) {
      CHECK(std::isnan(static_cast<float>(back)));
    } else {
      CHECK(back.bits == half.bits);
    }
  }
}

TEST_CASE("float16: rounds to nearest even") {
  auto round_trip = [](float value) { return static_cast<float>(float16(value)); };
  CHECK(round_trip(2049.0F) == 2048.0F);  // halfway: even below
  CHECK(round_trip(2051.0F) == 2052.0F);  // halfway: even above
  CHECK(round_trip(65519.0F) == 65504.0F);
  CHECK(round_trip(65520.0F) == std::numeric_limits<float>::infinity());
  CHECK(round_trip(0x1p-25F) == 0.0F);  // halfway to the smallest subnormal
  CHECK(round_trip(0x1.8p-25F) == 0x1p-24F);
  CHECK(std::signbit(round_trip(-0.0F)));
}

TEST_CASE("bfloat16: rounds to nearest even and keeps NaN") {
  auto round_trip = [](float value) { return static_cast<float>(bfloat16(value)); };
  CHECK(round_trip(257.0F) == 256.0F);
  CHECK(round_trip(259.0F) == 260.0F);
  CHECK(round_trip(std::numeric_limits<float>::max()) == std::numeric_limits<float>::infinity());
  CHECK(std::isnan(round_trip(std::numeric_limits<float>::quiet_NaN())));
  CHECK(std::isnan(round_trip(std::bit_cast<float>(0x7F800001U))));  // its fraction lies below the bits kept
}

TEST_CASE("dtype: names, sizes and promotion") {
  const DType all[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16,
                       DType::int64,   DType::int32,   DType::uint8,   DType::boolean};
  for (const DType a : all) {
    CHECK(dtype_from_string(to_string(a)) == a);
    for (const DType b : all) {
      CHECK(promote(a, b) == promote(b, a));
    }
  }
  CHECK(size_of(DType::bfloat16) == 2);
  CHECK(promote(DType::int64, DType::float16) == DType::float16);
  CHECK(promote(DType::float16, DType::bfloat16) == DType::float32);
  CHECK(promote(DType::uint8, DType::int32) == DType::int32);
  CHECK(promote(DType::float32, DType::float64) == DType::float64);
  CHECK_THROWS_WITH_AS(dtype_from_string("float8"),
                       "dtype: expected float32, float64, float16, bfloat16, int64, int32, uint8 or bool, got 'float8'",
                       Error);
}

TEST_CASE("copy: converts between all dtypes") {
  const DType all[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16,
                       DType::int64,   DType::int32,   DType::uint8,   DType::boolean};
  const Tensor source = from_vector<double>({0, 1, 0, 1, 1, 0}, {2, 3});
  for (const DType a : all) {
    const Tensor x = copy_of(source, MemoryFormat::contiguous, a);
    for (const DType b : all) {
      INFO(to_string(a) << " to " << to_string(b));
      CHECK(test::max_difference(copy_of(x, MemoryFormat::contiguous, b), source) == 0);
    }
  }
  CHECK(copy_of(from_vector<double>({2.9, -2.9, 0.5}, {3}), MemoryFormat::contiguous, DType::int32)
            .to_vector<int64_t>() == std::vector<int64_t>{2, -2, 0});
  CHECK(
      copy_of(from_vector<double>({0.5, 0, -1}, {3}), MemoryFormat::contiguous, DType::boolean).to_vector<int64_t>() ==
      std::vector<int64_t>{1, 0, 1});
}

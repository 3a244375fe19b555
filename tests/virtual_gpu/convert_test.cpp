#include "virtual_gpu/ptx_test_support.h"

namespace virtual_gpu::test {
namespace {

const float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = float_of_bits(0x7fc12345);

TEST_CASE("ptx conversions: integers are cut and extended") {
  CHECK(compute<int64_t>("cvt.s64.s32 %d, %a;", std::vector<int32_t>{-5, 7}) == std::vector<int64_t>{-5, 7});
  CHECK(compute<uint64_t>("cvt.u64.u32 %d, %a;", std::vector<uint32_t>{~0U}) == std::vector<uint64_t>{0xffffffff});
  CHECK(compute<uint32_t>("cvt.u32.u64 %d, %a;", std::vector<uint64_t>{0x123456789}) ==
        std::vector<uint32_t>{0x23456789});
  CHECK(compute<uint32_t>("cvt.u32.u16 %d, %a;", std::vector<uint16_t>{0xffee}) == std::vector<uint32_t>{0xffee});
  CHECK(compute<uint16_t>("cvt.u16.u32 %d, %a;", std::vector<uint32_t>{0x12345}) == std::vector<uint16_t>{0x2345});
  // The low byte of a wider register.
  CHECK(compute<int16_t>("cvt.s16.s8 %d, %a;", std::vector<uint16_t>{0x1280, 0x127f}) ==
        std::vector<int16_t>{-128, 127});
  CHECK(compute<int32_t>("cvt.s32.s8 %d, %a;", std::vector<uint32_t>{0x123456ff}) == std::vector<int32_t>{-1});
  CHECK(compute<uint32_t>("cvt.u8.u32 %d, %a;", std::vector<uint32_t>{0x1234}) == std::vector<uint32_t>{0x34});
}

TEST_CASE("ptx conversions: floats to integers round, and stop at the ends") {
  const std::vector<float> x = {0.5F, 1.5F, -1.5F, 2.7F, -2.7F, 3.0e9F, -3.0e9F, 1e30F, -1e30F, kInfinity, kNan};
  CHECK(compute<int32_t>("cvt.rzi.s32.f32 %d, %a;", x) ==
        std::vector<int32_t>{0, 1, -1, 2, -2, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX, 0});
  CHECK(compute<int32_t>("cvt.rni.s32.f32 %d, %a;", x) ==
        std::vector<int32_t>{0, 2, -2, 3, -3, INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX, 0});
  CHECK(compute<int32_t>("cvt.rmi.s32.f32 %d, %a;", x)[4] == -3);
  CHECK(compute<int32_t>("cvt.rpi.s32.f32 %d, %a;", x)[0] == 1);
  CHECK(compute<uint32_t>("cvt.rzi.u32.f32 %d, %a;", x) ==
        std::vector<uint32_t>{0, 1, 0, 2, 0, 3000000000U, 0, UINT32_MAX, 0, UINT32_MAX, 0});
  CHECK(compute<int64_t>("cvt.rzi.s64.f32 %d, %a;", x) ==
        std::vector<int64_t>{0, 1, -1, 2, -2, 3000000000, -3000000000, INT64_MAX, INT64_MIN, INT64_MAX, INT64_MIN});
  const std::vector<double> y = {2.5, 3.5, -0.5, 4294967295.0, 1e300, std::nan("")};
  CHECK(compute<int32_t>("cvt.rni.s32.f64 %d, %a;", y) ==
        std::vector<int32_t>{2, 4, 0, INT32_MAX, INT32_MAX, INT32_MIN});
  CHECK(compute<uint32_t>("cvt.rzi.u32.f64 %d, %a;", y) ==
        std::vector<uint32_t>{2, 3, 0, 4294967295U, UINT32_MAX, 0x80000000U});
  CHECK(compute<uint64_t>("cvt.rzi.u64.f64 %d, %a;", std::vector<double>{1.8e19, 1.9e19, -1}) ==
        std::vector<uint64_t>{18000000000000000000ULL, UINT64_MAX, 0});
}

TEST_CASE("ptx conversions: integers to floats round once") {
  CHECK(compute<float>("cvt.rn.f32.s32 %d, %a;", std::vector<int32_t>{16777217, -16777219, 5}) ==
        std::vector<float>{16777216.0F, -16777220.0F, 5.0F});
  CHECK(compute<float>("cvt.rn.f32.u32 %d, %a;", std::vector<uint32_t>{~0U}) == std::vector<float>{4294967296.0F});
  CHECK(compute<float>("cvt.rn.f32.s64 %d, %a;", std::vector<int64_t>{(1LL << 40) + 1, INT64_MIN, -9007199791611905}) ==
        std::vector<float>{static_cast<float>((1LL << 40) + 1), -9223372036854775808.0F,
                           static_cast<float>(-9007199791611905)});
  CHECK(compute<double>("cvt.rn.f64.u64 %d, %a;", std::vector<uint64_t>{~0ULL}) ==
        std::vector<double>{18446744073709551616.0});
  CHECK(compute<double>("cvt.rn.f64.s32 %d, %a;", std::vector<int32_t>{-7}) == std::vector<double>{-7});
  CHECK(compute<float>("cvt.rn.f32.s16 %d, %a;", std::vector<int16_t>{-7}) == std::vector<float>{-7});
  CHECK(compute<float>("cvt.rn.f32.u8 %d, %a;", std::vector<uint16_t>{0x1fe}) == std::vector<float>{254});
}

TEST_CASE("ptx conversions: between float and double, and to whole numbers") {
  const double between = 1.0 + 0x1p-24;  // half way between two floats
  CHECK(compute<float>("cvt.rn.f32.f64 %d, %a;", std::vector<double>{between, 1e300, 0x1p-150, 0.1}) ==
        std::vector<float>{1.0F, kInfinity, 0.0F, 0.1F});
  CHECK(compute<float>("cvt.rp.f32.f64 %d, %a;", std::vector<double>{between, -between}) ==
        std::vector<float>{1.0F + 0x1p-23F, -1.0F});
  CHECK(compute<double>("cvt.f64.f32 %d, %a;", std::vector<float>{0.1F, 0x1p-149F}) ==
        std::vector<double>{static_cast<double>(0.1F), 0x1p-149});
  CHECK(same_bits(compute<float>("cvt.rzi.f32.f32 %d, %a;", std::vector<float>{1.7F, -1.7F, -0.5F}), {1, -1, -0.0F}));
  CHECK(same_bits(compute<float>("cvt.rmi.f32.f32 %d, %a;", std::vector<float>{1.7F, -1.7F}), {1, -2}));
  CHECK(same_bits(compute<float>("cvt.rni.f32.f32 %d, %a;", std::vector<float>{0.5F, 1.5F, 2.5F}), {0, 2, 2}));
  CHECK(compute<double>("cvt.rzi.f64.f64 %d, %a;", std::vector<double>{-2.5}) == std::vector<double>{-2});
  CHECK(same_bits(compute<float>("cvt.sat.f32.f32 %d, %a;", std::vector<float>{-1, 0.25F, 7, kNan}), {0, 0.25F, 1, 0}));
}

TEST_CASE("ptx conversions: bfloat16 rounds to the nearest, ties to even") {
  CHECK(compute<uint16_t>("cvt.rn.bf16.f32 %d, %a;",
                          std::vector<float>{1.0F, float_of_bits(0x3f808000), float_of_bits(0x3f818000),
                                             float_of_bits(0x3f808001), 3.4e38F, -kInfinity, kNan, -0.0F}) ==
        std::vector<uint16_t>{0x3f80, 0x3f80, 0x3f82, 0x3f81, 0x7f80, 0xff80, 0x7fff, 0x8000});
  CHECK(compute<uint32_t>("cvt.rn.bf16x2.f32 %d, %a, %b;", std::vector<float>{1}, std::vector<float>{-2}) ==
        std::vector<uint32_t>{0x3f80c000});
  CHECK(compute<float>("cvt.f32.bf16 %d, %a;", std::vector<uint16_t>{0x3fc0}) == std::vector<float>{1.5F});
}

/// The half of a float by search through all halves.
uint16_t nearest_half(double x, const std::vector<double>& halves) {
  uint16_t best = 0;
  for (uint16_t h = 1; h <= 0x7c00; ++h) {
    const double value = h == 0x7c00 ? 65536.0 : halves[h];  // infinity counts as the number that would come next
    const double distance = std::fabs(x - value);
    const double least = std::fabs(x - (best == 0x7c00 ? 65536.0 : halves[best]));
    if (distance < least || (distance == least && h % 2 == 0)) {
      best = h;
    }
  }
  return best;
}

TEST_CASE("ptx conversions: every half, there and back") {
  std::vector<double> halves(0x7c00);
  for (size_t h = 0; h < halves.size(); ++h) {
    const int exponent = static_cast<int>(h >> 10);
    halves[h] = std::ldexp(static_cast<double>((h & 0x3ff) + (exponent > 0 ? 0x400 : 0)), std::max(exponent, 1) - 25);
  }
  for (size_t begin = 0; begin < halves.size(); begin += 1024) {
    std::vector<uint16_t> bits;
    std::vector<float> values;
    for (size_t h = begin; h < std::min(begin + 1024, halves.size()); ++h) {
      bits.push_back(static_cast<uint16_t>(h));
      values.push_back(static_cast<float>(halves[h]));
    }
    REQUIRE(compute<float>("cvt.f32.f16 %d, %a;", bits) == values);
    REQUIRE(compute<uint16_t>("cvt.rn.f16.f32 %d, %a;", values) == bits);
  }
  const std::vector<float> between = {
      0x1p-25F, 0x1.8p-24F, 0x1p-14F - 0x1p-26F, 1.00048828125F, 1.001F, 65519.0F, 65520.0F, 1e-9F, 3.14159F};
  std::vector<uint16_t> expected;
  for (const float x : between) {
    expected.push_back(nearest_half(static_cast<double>(x), halves));
  }
  CHECK(compute<uint16_t>("cvt.rn.f16.f32 %d, %a;", between) == expected);
  CHECK(compute<uint16_t>("cvt.rn.f16.f32 %d, %a;", std::vector<float>{kNan, -kInfinity, -2}) ==
        std::vector<uint16_t>{0x7fff, 0xfc00, 0xc000});
  CHECK(same_bits(compute<float>("cvt.f32.f16 %d, %a;", std::vector<uint16_t>{0x7e01, 0xfc00, 0x8000}),
                  {float_of_bits(0x7fffffff), -kInfinity, -0.0F}));
}

}  // namespace
}  // namespace virtual_gpu::test

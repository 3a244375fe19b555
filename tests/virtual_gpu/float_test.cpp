#include "virtual_gpu/ptx_test_support.h"

#include <cfenv>
#include <random>

namespace virtual_gpu::test {
namespace {

const float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = float_of_bits(0x7fc12345);     // with digits of its own
const float kOneNan = float_of_bits(0x7fffffff);  // what arithmetic gives
const float kSubnormal = float_of_bits(0x00000123);
const std::vector<float> kFloats = {0.0F,     -0.0F,      1.0F,        -1.5F,       0.1F,      3.0e38F,    -3.0e38F,
                                    1.2e-38F, kSubnormal, -kSubnormal, 16777217.0F, kInfinity, -kInfinity, kNan};

template <class F>
std::vector<float> expected(const Pairs<float>& p, F&& f) {
  return p.map<float>([&](float a, float b) {
    const float result = f(a, b);
    return result != result ? kOneNan : result;
  });
}

/// Random floats of all sizes.
std::vector<float> random_floats(size_t count, uint32_t seed, int spread = 40) {
  std::mt19937 random(seed);
  std::vector<float> values;
  for (size_t k = 0; k < count; ++k) {
    const float digits = 1.0F + static_cast<float>(random() & 0x7fffff) * 0x1p-23F;
    const int exponent = static_cast<int>(random() % static_cast<uint32_t>(2 * spread + 1)) - spread;
    values.push_back(std::ldexp(random() % 2 == 0 ? digits : -digits, exponent));
  }
  return values;
}

TEST_CASE("ptx floats: sums, products and quotients are those of IEEE, and NaN is one") {
  const Pairs<float> p(kFloats);
  CHECK(same_bits(compute<float>("add.rn.f32 %d, %a, %b;", p.first, p.second),
                  expected(p, [](float a, float b) { return a + b; })));
  CHECK(same_bits(compute<float>("sub.f32 %d, %a, %b;", p.first, p.second),
                  expected(p, [](float a, float b) { return a - b; })));
  CHECK(same_bits(compute<float>("mul.rn.f32 %d, %a, %b;", p.first, p.second),
                  expected(p, [](float a, float b) { return a * b; })));
  CHECK(same_bits(compute<float>("div.rn.f32 %d, %a, %b;", p.first, p.second),
                  expected(p, [](float a, float b) { return a / b; })));
  CHECK(same_bits(compute<float>("fma.rn.f32 %d, %a, %b, 0f3DCCCCCD;", p.first, p.second),
                  expected(p, [](float a, float b) { return std::fma(a, b, 0.1F); })));
  CHECK(same_bits(compute<float>("sqrt.rn.f32 %d, %a;", p.first),
                  expected(p, [](float a, float) { return std::sqrt(a); })));
  CHECK(same_bits(compute<float>("rcp.rn.f32 %d, %a;", p.first), expected(p, [](float a, float) { return 1 / a; })));
  const std::vector<double> doubles = {0.0, -0.0, 0.1, -7.25, 1e300, 5e-324, HUGE_VAL};
  const Pairs<double> q(doubles);
  CHECK(compute<double>("mul.rn.f64 %d, %a, %b; add.rn.f64 %d, %d, %b;", std::vector<double>{0.1, 1e300},
                        std::vector<double>{0.3, -1e300}) == std::vector<double>{0.1 * 0.3 + 0.3, -HUGE_VAL});
  CHECK(compute<double>("fma.rn.f64 %d, %a, %b, %c;", std::vector<double>{0.1}, std::vector<double>{10.0},
                        std::vector<double>{-1.0}) == std::vector<double>{std::fma(0.1, 10.0, -1.0)});
  CHECK(compute<double>("div.rn.f64 %d, %a, %b; sqrt.rn.f64 %d, %d;", std::vector<double>{2, 5e-324},
                        std::vector<double>{3, 1}) == std::vector<double>{std::sqrt(2.0 / 3.0), std::sqrt(5e-324)});
}

TEST_CASE("ptx floats: .ftz takes subnormal numbers for zeros, before and after") {
  const float least = 1.17549435e-38F;
  CHECK(same_bits(compute<float>("add.rn.ftz.f32 %d, %a, %b;", std::vector<float>{kSubnormal, -kSubnormal, least},
                                 std::vector<float>{0, -0.0F, -least * 1.5F}),
                  {0.0F, -0.0F, -0.0F}));
  CHECK(same_bits(compute<float>("mul.rn.ftz.f32 %d, %a, 0f3F000000;", std::vector<float>{least, -least, 3}),
                  {0.0F, -0.0F, 1.5F}));
  CHECK(same_bits(compute<float>("rcp.approx.ftz.f32 %d, %a;", std::vector<float>{kSubnormal, 2.0e38F, 4}),
                  {kInfinity, 0.0F, 0.25F}));
  CHECK(compute<uint32_t>("setp.eq.ftz.f32 %p, %a, 0f00000000; selp.u32 %d, 1, 0, %p;",
                          std::vector<float>{kSubnormal, 1}) == std::vector<uint32_t>{1, 0});
}

TEST_CASE("ptx floats: rounding towards a direction") {
  const std::vector<float> a = random_floats(1000, 1);
  const std::vector<float> b = random_floats(1000, 2);
  const std::vector<float> c = random_floats(1000, 3);
  const auto reference = [&](int mode) {
    std::vector<float> results;
    std::fesetround(mode);
    for (size_t k = 0; k < a.size(); ++k) {
      volatile float x = a[k];
      volatile float y = b[k];
      volatile float z = c[k];
      results.push_back(std::fma(x, y, z));
    }
    std::fesetround(FE_TONEAREST);
    return results;
  };
  CHECK(same_bits(compute<float>("fma.rm.f32 %d, %a, %b, %c;", a, b, c), reference(FE_DOWNWARD)));
  CHECK(same_bits(compute<float>("fma.rp.f32 %d, %a, %b, %c;", a, b, c), reference(FE_UPWARD)));
  CHECK(same_bits(compute<float>("fma.rz.f32 %d, %a, %b, %c;", a, b, c), reference(FE_TOWARDZERO)));
  CHECK(same_bits(compute<float>("fma.rn.f32 %d, %a, %b, %c;", a, b, c), reference(FE_TONEAREST)));
  const std::vector<float> big = {3.0e38F, -3.0e38F, 1.0F};
  CHECK(same_bits(compute<float>("add.rm.f32 %d, %a, %b;", big, std::vector<float>{3.0e38F, -3.0e38F, -1.0F}),
                  {3.40282347e38F, -kInfinity, -0.0F}));
  CHECK(same_bits(compute<float>("mul.rz.f32 %d, %a, %b;", big, std::vector<float>{10, 10, -0.0F}),
                  {3.40282347e38F, -3.40282347e38F, -0.0F}));
}

TEST_CASE("ptx floats: min and max prefer numbers, and know the sign of zero") {
  const Pairs<float> p({0.0F, -0.0F, 2.0F, -3.0F, kInfinity, kNan});
  const auto smaller = [](float a, float b) {
    if (a != a || b != b) {
      return a != a && b != b ? kOneNan : a != a ? b : a;
    }
    return a == b ? (std::signbit(a) ? a : b) : std::min(a, b);
  };
  CHECK(same_bits(compute<float>("min.f32 %d, %a, %b;", p.first, p.second), p.map<float>(smaller)));
  CHECK(same_bits(compute<float>("max.f32 %d, %a, %b;", p.first, p.second),
                  p.map<float>([&](float a, float b) { return a != a && b != b ? kOneNan : -smaller(-a, -b); })));
  CHECK(same_bits(compute<float>("max.NaN.f32 %d, %a, %b;", std::vector<float>{kNan, 1}, std::vector<float>{2, 3}),
                  {kOneNan, 3}));
  CHECK(compute<double>("min.f64 %d, %a, 0d3FF0000000000000;", std::vector<double>{2, -5, std::nan("")}) ==
        std::vector<double>{1, -5, 1});
}

TEST_CASE("ptx floats: signs and saturation") {
  CHECK(same_bits(compute<float>("neg.f32 %d, %a;", kFloats), map<float>(kFloats, [](float a) { return -a; })));
  CHECK(
      same_bits(compute<float>("abs.f32 %d, %a;", kFloats), map<float>(kFloats, [](float a) { return std::fabs(a); })));
  CHECK(same_bits(compute<float>("copysign.f32 %d, %a, %b;", std::vector<float>{-1, 2}, std::vector<float>{5, -6}),
                  {-5, 6}));
  CHECK(same_bits(compute<float>("add.sat.f32 %d, %a, %b;", std::vector<float>{0.5F, 1, -2, kNan},
                                 std::vector<float>{0.25F, 7, 1, 1}),
                  {0.75F, 1, 0, 0}));
}

TEST_CASE("ptx floats: comparisons with NaN") {
  const Pairs<float> p({1.0F, 2.0F, kNan});
  const auto flag = [&](const std::string& name) {
    return compute<uint32_t>("setp." + name + ".f32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", p.first, p.second);
  };
  const auto nan = [](float a, float b) { return a != a || b != b; };
  CHECK(flag("lt") == p.map<uint32_t>([](float a, float b) { return a < b; }));
  CHECK(flag("ltu") == p.map<uint32_t>([&](float a, float b) { return a < b || nan(a, b); }));
  CHECK(flag("ge") == p.map<uint32_t>([](float a, float b) { return a >= b; }));
  CHECK(flag("geu") == p.map<uint32_t>([&](float a, float b) { return a >= b || nan(a, b); }));
  CHECK(flag("gtu") == p.map<uint32_t>([&](float a, float b) { return a > b || nan(a, b); }));
  CHECK(flag("leu") == p.map<uint32_t>([&](float a, float b) { return a <= b || nan(a, b); }));
  CHECK(flag("eq") == p.map<uint32_t>([](float a, float b) { return a == b; }));
  CHECK(flag("equ") == p.map<uint32_t>([&](float a, float b) { return a == b || nan(a, b); }));
  CHECK(flag("ne") == p.map<uint32_t>([&](float a, float b) { return a != b && !nan(a, b); }));
  CHECK(flag("neu") == p.map<uint32_t>([&](float a, float b) { return a != b || nan(a, b); }));
  CHECK(flag("num") == p.map<uint32_t>([&](float a, float b) { return !nan(a, b); }));
  CHECK(flag("nan") == p.map<uint32_t>(nan));
}

/// The distance of two floats in units in the last place.
int64_t units(float a, float b) {
  return std::llabs(static_cast<int64_t>(static_cast<int32_t>(bits_of_float(a))) -
                    static_cast<int32_t>(bits_of_float(b)));
}

TEST_CASE("ptx floats: approximations are right to one unit, and at their ends") {
  std::vector<float> x = random_floats(1000, 4, 5);
  std::vector<float> positive = map<float>(x, [](float v) { return std::fabs(v); });
  const auto worst = [](const std::vector<float>& values, const std::vector<float>& results, double (*f)(double)) {
    int64_t most = 0;
    for (size_t k = 0; k < values.size(); ++k) {
      most = std::max(most, units(results[k], static_cast<float>(f(static_cast<double>(values[k])))));
    }
    return most;
  };
  CHECK(worst(x, compute<float>("ex2.approx.ftz.f32 %d, %a;", x), std::exp2) <= 1);
  CHECK(worst(positive, compute<float>("lg2.approx.f32 %d, %a;", positive), std::log2) <= 1);
  CHECK(worst(positive, compute<float>("rsqrt.approx.ftz.f32 %d, %a;", positive),
              [](double v) { return 1 / std::sqrt(v); }) <= 1);
  CHECK(worst(x, compute<float>("sin.approx.f32 %d, %a;", x), std::sin) <= 1);
  CHECK(worst(x, compute<float>("cos.approx.f32 %d, %a;", x), std::cos) <= 1);
  CHECK(worst(x, compute<float>("tanh.approx.f32 %d, %a;", x), std::tanh) <= 1);
  CHECK(same_bits(
      compute<float>("ex2.approx.ftz.f32 %d, %a;",
                     std::vector<float>{0, -0.0F, 10, -126, -127, 128, kInfinity, -kInfinity, kNan, 1e30F, -1e30F}),
      {1, 1, 1024, 1.17549435e-38F, 0, kInfinity, kInfinity, 0, kOneNan, kInfinity, 0}));
  CHECK(same_bits(compute<float>("ex2.approx.f32 %d, %a;", std::vector<float>{-127, -149, -160}),
                  {0x1p-127F, 0x1p-149F, 0}));
  CHECK(same_bits(compute<float>("lg2.approx.ftz.f32 %d, %a;", std::vector<float>{0, 1, 8, -1, kInfinity}),
                  {-kInfinity, 0, 3, kOneNan, kInfinity}));
}

TEST_CASE("ptx floats: the gross reciprocal of a double keeps twenty digits") {
  const std::vector<double> x = {3.0, 0.1, -7.0, 1e200};
  const std::vector<double> r = compute<double>("rcp.approx.ftz.f64 %d, %a;", x);
  const std::vector<double> s = compute<double>("rsqrt.approx.ftz.f64 %d, %a;", std::vector<double>{3.0, 0.1});
  for (size_t k = 0; k < x.size(); ++k) {
    uint64_t bits = 0;
    std::memcpy(&bits, &r[k], sizeof bits);
    CHECK((bits & 0xffffffff) == 0);
    CHECK(r[k] * x[k] == doctest::Approx(1).epsilon(2e-6));
  }
  CHECK(s[0] * s[0] * 3 == doctest::Approx(1).epsilon(4e-6));
  CHECK(compute<double>("rcp.approx.ftz.f64 %d, %a;", std::vector<double>{0.0, -HUGE_VAL, 0.25}) ==
        std::vector<double>{HUGE_VAL, -0.0, 4});
}

}  // namespace
}  // namespace virtual_gpu::test

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/core/simd_test.cpp"
#include "core/simd/foreach_target.h"

#include "core/simd/math.h"
#include "core/simd/sums.h"
#include "float_distance.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <vector>

HWY_BEFORE_NAMESPACE();
namespace norma::simd::HWY_NAMESPACE {

namespace {

template <class T>
std::array<T, kLanes<T>> numbers_of(const Lanes<T>& v) {
  std::array<T, kLanes<T>> numbers;
  store(numbers.data(), v, Whole{});
  return numbers;
}

/// Exactly `count` numbers, for AddressSanitizer.
template <class S>
std::unique_ptr<S[]> sequence(int count) {
  auto numbers = std::make_unique<S[]>(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) {
    numbers[static_cast<size_t>(i)] = static_cast<S>(static_cast<compute_t<S>>(i + 1));
  }
  return numbers;
}

template <class S>
void check_parts_of(S) {
  using T = compute_t<S>;
  for (int count = 1; count < kLanes<T>; ++count) {
    CAPTURE(count);
    const auto from = sequence<S>(count);
    const std::array<T, kLanes<T>> loaded = numbers_of<T>(load(static_cast<const S*>(from.get()), First{count}));
    for (int i = 0; i < kLanes<T>; ++i) {
      CHECK(loaded[static_cast<size_t>(i)] == (i < count ? T(i + 1) : T(0)));
    }
    const auto to = sequence<S>(kLanes<T>);
    const auto exact = std::make_unique<S[]>(static_cast<size_t>(count));
    store(to.get(), broadcast(T(-2)), First{count});
    store(exact.get(), broadcast(T(-2)), First{count});
    for (int i = 0; i < kLanes<T>; ++i) {
      CHECK(static_cast<T>(to[static_cast<size_t>(i)]) == (i < count ? T(-2) : T(i + 1)));
      CHECK((i >= count || static_cast<T>(exact[static_cast<size_t>(i)]) == T(-2)));
    }
    const std::array<T, kLanes<T>> kept = numbers_of<T>(keep(broadcast(T(3)), First{count}));
    for (int i = 0; i < kLanes<T>; ++i) {
      CHECK(kept[static_cast<size_t>(i)] == (i < count ? T(3) : T(0)));
    }
  }
}

template <class T>
void check_zeros_of(T) {
  struct Sums {
    Lanes<T> sum{};
    Register<T> part{};
  };
  alignas(Sums) std::array<std::byte, sizeof(Sums)> memory;
  memory.fill(std::byte{0x40});  // what a vector that is left as it is would show
  const Sums& sums = *new (memory.data()) Sums;
  for (const T number : numbers_of<T>(sums.sum)) {
    CHECK(number == 0);
  }
  std::array<T, kRegisterLanes<T>> part;
  store(part.data(), sums.part, OneRegister{});
  for (const T number : part) {
    CHECK(number == 0);
  }
}

/// Vectors at every distance from an aligned place, and what is left over.
template <class S>
void check_streams_of(S) {
  using T = compute_t<S>;
  constexpr int64_t count = 5 * kLanes<T>;
  alignas(64) std::array<S, 64 + count> to;
  for (size_t shift = 0; shift < 64 / sizeof(S); ++shift) {
    CAPTURE(shift);
    to.fill(static_cast<S>(T(-1)));
    {
      const StreamingStore stream(true);
      for_each_lanes<T>(count - 3, [&](int64_t i, auto part) {
        stream(to.data() + shift + i, broadcast(static_cast<T>(i + 1)), part);
      });
    }
    for (size_t i = 0; i < to.size(); ++i) {
      const auto at = static_cast<int64_t>(i - shift);
      const bool inside = i >= shift && at < count - 3;
      CHECK(static_cast<T>(to[i]) == (inside ? static_cast<T>(at / kLanes<T> * kLanes<T> + 1) : T(-1)));
    }
  }
}

void check_streams() {
  check_streams_of(0.0F);
  check_streams_of(0.0);
  check_streams_of(bfloat16{});
  check_streams_of(float16{});
}

void check_parts() {
  check_parts_of(0.0F);
  check_parts_of(0.0);
  check_parts_of(bfloat16{});
  check_parts_of(float16{});
}

/// Whether two floats are the same number or both NaN; -0 is not 0.
bool same(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

template <class H>
void check_conversions_of(H) {
  int64_t wrong = 0;
  for (uint32_t first = 0; first < 0x10000U; first += kLanes<float>) {
    std::array<H, kLanes<float>> halves;
    for (uint32_t i = 0; i < halves.size(); ++i) {
      halves[i].bits = static_cast<uint16_t>(first + i);
    }
    const std::array<float, kLanes<float>> wide = numbers_of<float>(load(halves.data(), Whole{}));
    for (size_t i = 0; i < halves.size(); ++i) {
      wrong += same(wide[i], static_cast<float>(halves[i])) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
  for (uint64_t first = 0; first < (uint64_t{1} << 32); first += 70001) {
    std::array<float, kLanes<float>> wide;
    for (size_t i = 0; i < wide.size(); ++i) {
      wide[i] = std::bit_cast<float>(static_cast<uint32_t>(first + 0x0801 * i));
    }
    std::array<H, kLanes<float>> halves;
    store(halves.data(), load(static_cast<const float*>(wide.data()), Whole{}), Whole{});
    for (size_t i = 0; i < wide.size(); ++i) {
      wrong += same(static_cast<float>(halves[i]), static_cast<float>(H(wide[i]))) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

void check_conversions() {
  check_conversions_of(bfloat16{});
  check_conversions_of(float16{});
}

void check_sums() {
  std::array<float, 16> a;
  std::array<float, 16> b;
  for (int i = 0; i < 16; ++i) {
    a[static_cast<size_t>(i)] = std::sin(1.0F + static_cast<float>(i)) * std::ldexp(1.0F, i);
    b[static_cast<size_t>(i)] = std::cos(2.0F + static_cast<float>(i)) * std::ldexp(1.0F, 16 - i);
  }
  const auto halves = [](const std::array<float, 16>& v) {
    std::array<double, 8> sums;
    for (size_t i = 0; i < 8; ++i) {
      sums[i] = static_cast<double>(v[i] + v[i + 8]);
    }
    return sums;
  };
  const auto pairs = [&](const std::array<float, 16>& v) {
    const std::array<double, 8> h = halves(v);
    return ((h[0] + h[1]) + (h[4] + h[5])) + ((h[2] + h[3]) + (h[6] + h[7]));
  };
  const Lanes<float> first = load(static_cast<const float*>(a.data()), Whole{});
  const Lanes<float> second = load(static_cast<const float*>(b.data()), Whole{});
  const TwoSums two = add_lanes(first, second);
  CHECK(two.first == pairs(a));
  CHECK(two.second == pairs(b));
  const std::array<double, 8> h = halves(a);
  CHECK(add_lanes(first) == ((h[0] + h[4]) + (h[2] + h[6])) + ((h[1] + h[5]) + (h[3] + h[7])));
}

template <class T>
void check_bits_of(T) {
  for (const uint32_t bits : {0x0000U, 0x0001U, 0x8000U, 0xA5C3U, 0x5A3CU, 0xFFFFU}) {
    const uint32_t expected = bits & ((1U << kLanes<T>)-1U);
    const Lanes<T> ones = where_bits(bits, broadcast(T(1)));
    CHECK(bits_of<T>(broadcast(T(0)) < ones) == expected);
    CHECK(bits_of<T>(broadcast(T(1)) <= ones) == expected);
  }
  const T nan = std::numeric_limits<T>::quiet_NaN();
  CHECK(bits_of<T>(broadcast(nan) <= broadcast(T(0))) == 0);
  CHECK(bits_of<T>(broadcast(nan) < broadcast(T(0))) == 0);
}

template <class T>
void check_masks_of(T) {
  const T nan = std::numeric_limits<T>::quiet_NaN();
  constexpr uint32_t kAll = (1U << kLanes<T>)-1U;
  for (const uint32_t a : {0x0000U, 0x0001U, 0xA5C3U, 0xFFFFU}) {
    for (const uint32_t b : {0x0000U, 0x8081U, 0x5A3CU, 0xFFFFU}) {
      CHECK(bits_of<T>(mask_of<T>(a) & mask_of<T>(b)) == (a & b & kAll));
      CHECK(bits_of<T>(mask_of<T>(a) | mask_of<T>(b)) == ((a | b) & kAll));
    }
    CHECK(bits_of<T>(is_nan(where_bits(a, broadcast(nan)))) == (a & kAll));
  }
  CHECK(std::signbit(numbers_of<T>(-broadcast(T(0)))[1]));
  CHECK(numbers_of<T>(-broadcast(T(3)))[kLanes<T> - 1] == T(-3));
}

/// (1 + e)² - (1 + 2e) is e² when it is rounded once, and 0 when the product is rounded first.
template <class T>
void check_multiply_add_of(T e) {
  const Lanes<T> a = broadcast(T(1) + e);
  for (const T value : numbers_of<T>(multiply_add(a, a, broadcast(-(T(1) + 2 * e))))) {
    CHECK(value == (HWY_TARGET <= HWY_AVX2 || HWY_TARGET == HWY_NEON ? e * e : 0));
  }
}

void check_multiply_add() {
  check_multiply_add_of(0x1p-13F);
  check_multiply_add_of(0x1p-30);
}

void check_promotion() {
  std::array<float, kLanes<float>> numbers;
  for (int i = 0; i < kLanes<float>; ++i) {
    numbers[static_cast<size_t>(i)] = 1.0F / static_cast<float>(i + 1);
  }
  const auto wide = promote(load(static_cast<const float*>(numbers.data()), Whole{}));
  const std::array<double, kLanes<double>> low = numbers_of<double>(wide.low);
  const std::array<double, kLanes<double>> high = numbers_of<double>(wide.high);
  for (size_t i = 0; i < low.size(); ++i) {
    CHECK(low[i] == static_cast<double>(numbers[i]));
    CHECK(high[i] == static_cast<double>(numbers[i + low.size()]));
  }
}

void check_bits() {
  check_masks_of(0.0F);
  check_masks_of(0.0);
  check_bits_of(0.0F);
  check_bits_of(0.0);
}

double distribution(double x) {
  return 0.5 * std::erfc(-x * 0.70710678118654752440);
}

/// Floats over the whole range: all exponents and both signs, and densely where the functions bend.
std::vector<float> arguments() {
  std::vector<float> all{0.0F, -0.0F, INFINITY, -INFINITY, std::nanf(""), 1e-42F, -1e-42F};
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 100043) {
    all.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (float x = -104; x < 89; x += 0.0031F) {
    all.push_back(x);
  }
  all.resize(all.size() / kLanes<float> * kLanes<float>);
  return all;
}

/// f is no function pointer: one to a function of vectors would be called as the build's own processor hands them over.
template <class F>
void check_function(const char* name, F f, double (*exact)(double), double units,
                    double low = -std::numeric_limits<double>::infinity(),
                    double high = std::numeric_limits<double>::infinity()) {
  const std::vector<float> all = arguments();
  double worst = 0;
  float worst_at = 0;
  for (size_t first = 0; first < all.size(); first += kLanes<float>) {
    const Lanes<float> x = load(all.data() + first, Whole{});
    const std::array<float, kLanes<float>> values = numbers_of<float>(f(x));
    for (size_t i = 0; i < values.size(); ++i) {
      const float at = all[first + i];
      const double d = at < low || at > high ? 0 : test::float_distance(values[i], exact(at));
      if (!(d <= worst)) {
        worst = d;
        worst_at = at;
      }
    }
  }
  CHECK_MESSAGE(worst <= units, name << ": " << worst << " units at " << worst_at);
}

void check_functions() {
  using V = Lanes<float>;
  check_function(
      "exp", [](const V& x) HWY_ATTR { return exp(x); }, [](double x) { return std::exp(x); }, 1.1);
  check_function(
      "exp for 16 bits", [](const V& x) HWY_ATTR { return exp_for_16_bits(x); }, [](double x) { return std::exp(x); },
      128, -87, 0);
  check_function(
      "exp for 16 bits, far", [](const V& x) HWY_ATTR { return exp_for_16_bits(x); },
      [](double x) { return std::isnan(x) ? x : 0.0; }, 0, -std::numeric_limits<double>::infinity(), -87.1);
  check_function(
      "log", [](const V& x) HWY_ATTR { return log(x); }, [](double x) { return std::log(x); }, 1);
  check_function(
      "sqrt", [](const V& x) HWY_ATTR { return sqrt(x); }, [](double x) { return std::sqrt(x); }, 0.5);
  check_function(
      "tanh", [](const V& x) HWY_ATTR { return tanh(x); }, [](double x) { return std::tanh(x); }, 1.5);
  check_function(
      "erf", [](const V& x) HWY_ATTR { return erf(x); }, [](double x) { return std::erf(x); }, 1.5);
  check_function(
      "sigmoid", [](const V& x) HWY_ATTR { return sigmoid(x); }, [](double x) { return 1 / (1 + std::exp(-x)); }, 2.5,
      -88);
  check_function(
      "sigmoid beside its slope", [](const V& x) HWY_ATTR { return sigmoid_and_slope(x).value; },
      [](double x) { return 1 / (1 + std::exp(-x)); }, 3, -87);
  check_function(
      "slope of sigmoid", [](const V& x) HWY_ATTR { return sigmoid_and_slope(x).slope; },
      [](double x) { return 1 / (2 + std::exp(-x) + std::exp(x)); }, 4, -87, 87);
  check_function(
      "normal distribution", [](const V& x) HWY_ATTR { return normal(x).distribution; }, distribution, 3.5, -1);
  // In the tail the rounding error of x^2 / 2 stands in the exponent.
  check_function(
      "normal density", [](const V& x) HWY_ATTR { return normal(x).density; },
      [](double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI); }, 70, -12.5, 12.5);
}

void check_double_functions() {
  const std::array<double, 8> x = {-3, -1, -0.25, 0, 0.5, 1, 2, 20};
  const Lanes<double> v = load(x.data(), Whole{});
  const std::array<double, 8> e = numbers_of<double>(exp(v));
  const std::array<double, 8> l = numbers_of<double>(log(abs(v)));
  const std::array<double, 8> t = numbers_of<double>(tanh(v));
  const std::array<double, 8> f = numbers_of<double>(erf(v));
  const std::array<double, 8> n = numbers_of<double>(normal(v).distribution);
  for (size_t i = 0; i < 8; ++i) {
    CHECK(e[i] == std::exp(x[i]));
    CHECK(l[i] == std::log(std::fabs(x[i])));
    CHECK(t[i] == std::tanh(x[i]));
    CHECK(f[i] == std::erf(x[i]));
    CHECK(n[i] == doctest::Approx(distribution(x[i])).epsilon(1e-14));
  }
}

}  // namespace

void check_all() {
  SUBCASE("the first few numbers are loaded, stored and kept, and nothing behind them") {
    check_parts();
  }
  SUBCASE("{} makes zeros") {
    check_zeros_of(0.0F);
    check_zeros_of(0.0);
  }
  SUBCASE("16 bits are widened and rounded as one number is") {
    check_conversions();
  }
  SUBCASE("the order of a sum is always the same") {
    check_sums();
  }
  SUBCASE("stores around the caches") {
    check_streams();
  }
  SUBCASE("a bit per lane") {
    check_bits();
  }
  SUBCASE("multiply_add rounds once where that is an instruction") {
    check_multiply_add();
  }
  SUBCASE("floats become doubles in order") {
    check_promotion();
  }
  SUBCASE("float32 functions against float64") {
    check_functions();
  }
  SUBCASE("float64 functions are the standard library's") {
    check_double_functions();
  }
}

}  // namespace norma::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::simd {

HWY_EXPORT(check_all);

TEST_CASE("simd: the vectors of the target in use") {
  NORMA_SIMD_BEST(check_all)();
}

}  // namespace norma::simd
#endif

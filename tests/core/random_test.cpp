#include "core/random.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/parallel.h"
#include "tests/error_text.h"
#include "tests/support.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

using namespace norma;
using norma::test::error_of;

// The known answers that the authors of Philox publish with Random123 (kat_vectors, philox4x32 with 10 rounds).
TEST_CASE("philox: known answers") {
  using Words = std::array<uint32_t, 4>;
  CHECK(philox(0, 0, 0) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox(~0ULL, ~0ULL, ~0ULL) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox(0x299f31d0a4093822, 0x85a308d3243f6a88, 0x0370734413198a2e) ==
        Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("random: the same numbers in every format and for any number of threads") {
  const int before = num_threads();
  for (const DType dtype : {DType::float32, DType::float64}) {
    std::vector<double> expected;
    for (const int threads : {1, 2, 3}) {
      set_num_threads(threads);
      for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
        Generator generator(42);
        const auto values = randn({5, 33, 7, 9}, {.dtype = dtype, .format = format}, generator).to_vector<double>();
        if (expected.empty()) {
          expected = values;
        }
        CHECK(values == expected);
      }
    }
  }
  set_num_threads(before);
}

TEST_CASE("random: moments and ranges") {
  Generator generator(7);
  auto moments = [](const Tensor& x) {
    double mean = 0;
    double square = 0;
    for (const double value : x.to_vector<double>()) {
      mean += value;
      square += value * value;
    }
    const auto count = static_cast<double>(x.numel());
    return std::pair{mean / count, square / count};
  };
  const auto [normal_mean, normal_square] = moments(randn({200000}, {}, generator));
  CHECK(std::abs(normal_mean) < 0.01);  // 4.5 standard errors
  CHECK(std::abs(normal_square - 1) < 0.015);
  const Tensor uniform = rand({200000}, {}, generator);
  const auto [uniform_mean, uniform_square] = moments(uniform);
  CHECK(std::abs(uniform_mean - 0.5) < 0.003);
  CHECK(std::abs(uniform_square - 1.0 / 3) < 0.003);
  const auto values = uniform.to_vector<double>();
  CHECK(*std::min_element(values.begin(), values.end()) >= 0);
  CHECK(*std::max_element(values.begin(), values.end()) < 1);

  Tensor truncated = empty({50000});
  truncated_normal_(truncated, 0, 1, -0.5, 0.5, generator);
  const auto inside = truncated.to_vector<double>();
  CHECK(*std::min_element(inside.begin(), inside.end()) >= -0.5);
  CHECK(*std::max_element(inside.begin(), inside.end()) <= 0.5);

  auto dice = randint(1, 7, {6000}, {.dtype = DType::int64}, generator).to_vector<int64_t>();
  for (int64_t face = 1; face <= 6; ++face) {
    const auto count = std::count(dice.begin(), dice.end(), face);
    CHECK(count > 850);
    CHECK(count < 1150);
  }
  CHECK_THROWS_WITH_AS(randint(3, 3, {1}), "randint: high: expected a number above low 3, got 3", Error);
}

TEST_CASE("random: uniform_ refuses ends in the wrong order and ends that its dtype does not hold") {
  const Tensor x = zeros({2});
  CHECK(error_of([&] { uniform_(x, 1, 0.5); }) == "uniform_: high: expected a number of at least low 1, got 0.5");
  CHECK(error_of([&] { uniform_(x, 0, NAN); }) == "uniform_: high: expected a number of at least low 0, got nan");
  CHECK(error_of([&] { uniform_(x, -3e38, 3e38); }) ==
        "uniform_: expected low, high and high - low as finite numbers of float32, got low -3e+38 and high 3e+38");
  CHECK_THROWS_AS(uniform_(x, 1e39, 1.5e39), Error);
  uniform_(zeros({2}, {.dtype = DType::float64}), -3e38, 3e38);
  uniform_(x, 2, 2);
  CHECK(x.to_vector<float>() == std::vector<float>{2, 2});
}

TEST_CASE("random: uniform_ stays below its end where sums round up to it") {
  for (const Device device : {kCpu, kCudaEmulated}) {
    for (const DType dtype : {DType::float32, DType::float64}) {
      for (const double start : {dtype == DType::float32 ? 1e6 : 1e15, dtype == DType::float32 ? -1e6 : -1e15}) {
        CAPTURE(start);
        // Numbers lie 1/16 or 1/8 apart here, so that one in 32 or 16 shares of the range is rounded to its end.
        const Tensor x = empty({1000}, {.dtype = dtype, .device = device});
        Generator generator(7);
        uniform_(x, start, start + 1, generator);
        const auto values = to_device(x, kCpu).to_vector<double>();
        CHECK(*std::min_element(values.begin(), values.end()) == start);
        CHECK(*std::max_element(values.begin(), values.end()) == start + (dtype == DType::float32 ? 0.9375 : 0.875));
      }
    }
  }
  const Tensor x = empty({1000});
  uniform_(x, 1e9, 1e9 + 1);  // no float32 lies between the two
  CHECK(x.to_vector<float>() == std::vector<float>(1000, 1e9F));
}

TEST_CASE("random: a permutation holds every number once and follows the seed") {
  Generator a(3);
  Generator b(3);
  auto order = randperm(1000, a).to_vector<int64_t>();
  CHECK(order == randperm(1000, b).to_vector<int64_t>());
  CHECK(order != randperm(1000, a).to_vector<int64_t>());
  std::sort(order.begin(), order.end());
  CHECK(order == arange(1000).to_vector<int64_t>());
}

#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "support.h"

#include <algorithm>
#include <cmath>
#include <vector>

using namespace norma;
using namespace norma::test;

namespace {

// Sizes around the vector width, and more than one thread's share.
constexpr int64_t kCounts[] = {1, 7, 8, 15, 16, 17, 31, 33, 40'003};

template <class T>
std::vector<T> numbers_of(const Tensor& x) {
  return x.to_vector<T>();
}

template <class T>
void check_steps(T) {
  constexpr DType dtype = dtype_of<T>();
  for (const int64_t count : kCounts) {
    CAPTURE(count);
    const Tensor p = random_tensor({count}, 1, dtype);
    const Tensor g = random_tensor({count}, 2, dtype);
    const Tensor m = random_tensor({count}, 3, dtype);
    const Tensor v = abs(random_tensor({count}, 4, dtype));
    const std::vector<T> ps = numbers_of<T>(p);
    const std::vector<T> gs = numbers_of<T>(g);
    const std::vector<T> ms = numbers_of<T>(m);
    const std::vector<T> vs = numbers_of<T>(v);
    const auto n = static_cast<size_t>(count);
    size_t wrong = 0;

    const T decay = T(0.01);
    Tensor p1 = copy_of(p, MemoryFormat::contiguous);
    sgd_step({{.parameter = p1, .gradient = g, .step = {.rate = 0.1, .weight_decay = 0.01}}});
    const std::vector<T> plain = numbers_of<T>(p1);
    for (size_t i = 0; i < n; ++i) {
      wrong += plain[i] == ps[i] - T(0.1) * (gs[i] + decay * ps[i]) ? 0 : 1;
    }

    Tensor p2 = copy_of(p, MemoryFormat::contiguous);
    Tensor m2 = copy_of(m, MemoryFormat::contiguous);
    sgd_step({{.parameter = p2,
               .gradient = g,
               .average = m2,
               .step = {.rate = 0.1, .weight_decay = 0.01, .momentum = 0.9, .share = 0.8, .own = 0.3, .along = 0.7}}});
    const std::vector<T> moved = numbers_of<T>(p2);
    const std::vector<T> velocity = numbers_of<T>(m2);
    for (size_t i = 0; i < n; ++i) {
      const T slope = gs[i] + decay * ps[i];
      const T speed = T(0.9) * ms[i] + T(0.8) * slope;
      wrong += velocity[i] == speed ? 0 : 1;
      wrong += moved[i] == ps[i] - T(0.1) * (T(0.3) * slope + T(0.7) * speed) ? 0 : 1;
    }

    Tensor p3 = copy_of(p, MemoryFormat::contiguous);
    Tensor m3 = copy_of(m, MemoryFormat::contiguous);
    Tensor v3 = copy_of(v, MemoryFormat::contiguous);
    adamw_step({{p3,
                 g,
                 m3,
                 v3,
                 {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-3, .shrink = 0.999, .step_size = 0.02, .scale = 1.25}}});
    const std::vector<T> stepped = numbers_of<T>(p3);
    const std::vector<T> means = numbers_of<T>(m3);
    const std::vector<T> squares = numbers_of<T>(v3);
    for (size_t i = 0; i < n; ++i) {
      const T mean = T(0.9) * ms[i] + static_cast<T>(1 - 0.9) * gs[i];
      const T square = T(0.99) * vs[i] + static_cast<T>(1 - 0.99) * gs[i] * gs[i];
      wrong += means[i] == mean ? 0 : 1;
      wrong += squares[i] == square ? 0 : 1;
      wrong += stepped[i] == T(0.999) * ps[i] - T(0.02) * mean / (std::sqrt(square) * T(1.25) + T(1e-3)) ? 0 : 1;
    }
    CHECK(wrong == 0);
  }
}

}  // namespace

TEST_CASE("optimizer: every number of a step is rounded as in the formula") {
  check_steps(0.0F);
  check_steps(0.0);
}

TEST_CASE("optimizer: the order of a sum of squares is always the same") {
  constexpr int64_t kBlock = 4096;
  const Tensor x = to_device(random_tensor({2 * kBlock + 83}, 5, DType::float32), kCpu);
  const std::vector<float> values = numbers_of<float>(x);
  double expected = 0;
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    const size_t count = std::min<size_t>(kBlock, values.size() - begin);
    double chains[2][16] = {};
    for (size_t i = 0; i < count; ++i) {
      const double value = values[begin + i];
      chains[i < count / 32 * 32 ? i / 16 % 2 : 0][i % 16] += value * value;
    }
    double h[8];
    for (size_t i = 0; i < 8; ++i) {
      h[i] = (chains[0][i] + chains[1][i]) + (chains[0][i + 8] + chains[1][i + 8]);
    }
    expected += ((h[0] + h[4]) + (h[2] + h[6])) + ((h[1] + h[5]) + (h[3] + h[7]));
  }
  CHECK(sums_of_squares({x}, kCpu).to_vector<double>()[0] == expected);
}

TEST_CASE("optimizer: numbers are scaled and cut off, every floating dtype, NaN stays") {
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    for (const int64_t count : kCounts) {
      CAPTURE(count);
      Tensor x = full({count}, 3, {.dtype = dtype});
      fill_(alias(x, {}, {}, count - 1), NAN);
      Tensor y = neg(x);
      scale_in_place("scale", {x}, full({}, 0.5, {.dtype = DType::float64}));
      cut_off_in_place("cut off", {y}, 2);
      const std::vector<double> halves = x.to_vector<double>();
      const std::vector<double> cut = y.to_vector<double>();
      for (size_t i = 0; i + 1 < halves.size(); ++i) {
        REQUIRE(halves[i] == 1.5);
        REQUIRE(cut[i] == -2);
      }
      CHECK(std::isnan(halves.back()));
      CHECK(std::isnan(cut.back()));
    }
  }
}

#include "lab/statistics/statistics.h"

#include "core/random.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>
#include <vector>

using namespace norma;
using namespace norma::lab;

namespace {

std::vector<double> one_to(int count) {
  std::vector<double> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 1.0);
  return values;
}

}  // namespace

TEST_CASE("median_interval: the ranks of the tables of the sign test") {
  // Conover, Practical Nonparametric Statistics: n = 6: 1 and 6; 10: 2 and 9; 20: 6 and 15; 40: 14 and 27.
  // Of many: n / 2 - 0.98 * sqrt(n).
  for (const auto& [count, low] : {std::pair{6, 1}, {8, 1}, {9, 2}, {10, 2}, {20, 6}, {40, 14}, {10000, 4902}}) {
    CAPTURE(count);
    const MedianInterval found = median_interval(one_to(count));
    CHECK(found.sure);
    CHECK(found.low == low);
    CHECK(found.high == count + 1 - low);
    CHECK(found.median == (count + 1) / 2.0);
    CHECK(found.count == count);
  }
}

TEST_CASE("median_interval: few values show nothing") {
  CHECK(median_interval({}).count == 0);
  const MedianInterval five = median_interval({5, 3, 1, 4, 2});
  CHECK(!five.sure);
  CHECK(five.low == 1);
  CHECK(five.median == 3);
  CHECK(five.high == 5);
  CHECK(median_interval({2, 4}).median == 3);
}

TEST_CASE("median_interval: fewer errors make it wider") {
  CHECK(median_interval(one_to(20), 0.01).low == 4);  // Conover: 4 and 17
  CHECK(median_interval(one_to(20), 0.01).high == 17);
  CHECK(median_interval(one_to(8), 0.01).sure);  // 2 / 256
  CHECK(!median_interval(one_to(7), 0.01).sure);
}

TEST_CASE("median_interval: it holds the true median about 95 times in 100 or more") {
  Generator random(7);
  int held = 0;
  constexpr int kTrials = 2000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values(15);
    for (double& value : values) {
      const double u = random.uniform();
      value = u < 0.5 ? -u : std::exp(8 * (u - 0.5));  // skewed; half of the values are below 0
    }
    const MedianInterval found = median_interval(values);
    held += !found.sure || (found.low <= 0 && found.high >= 0) ? 1 : 0;
  }
  CHECK(held >= 0.94 * kTrials);
  CHECK(held <= 0.985 * kTrials);
}

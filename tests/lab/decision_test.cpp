#include "lab/statistics/statistics.h"

#include "core/random.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

using namespace norma;
using namespace norma::lab;

using State = Decision::State;

namespace {

Decision decide(const std::vector<double>& differences, int64_t tests) {
  return decide_by_mean(scatter_of(differences), tests);
}

}  // namespace

TEST_CASE("decision: mean, interval and chance of differences in pairs") {
  // scipy 1.15: stats.ttest_1samp([1, 2, 3, 4], 0) has p 0.030466; its confidence_interval(0.95) is 0.4457 to 4.5543,
  // that of 0.975 is -0.0973 to 5.0973.
  const Decision one = decide({1, 2, 3, 4}, 1);
  CHECK(one.state == State::found);
  CHECK(one.difference == 2.5);
  CHECK(one.low == doctest::Approx(0.4457397));
  CHECK(one.high == doctest::Approx(4.5542603));
  CHECK(one.chance == doctest::Approx(0.0304662));
  CHECK(one.pairs == 4);
  CHECK(decide({-1, -2, -3, -4}, 1).chance == doctest::Approx(0.0304662));
  const Decision two = decide({1, 2, 3, 4}, 2);
  CHECK(two.state == State::none_found);
  CHECK(two.low < 0);
  CHECK(two.chance == doctest::Approx(2 * 0.0304662));
  CHECK(decide({-1, 1}, 1).chance == doctest::Approx(1));
  CHECK(decide({-1, 1, 2}, 100).chance == 1);
}

TEST_CASE("decision: what too few or too coarse differences do not show") {
  for (const std::vector<double>& differences :
       {std::vector<double>{}, {1}, {0.1, 0.1, 0.1}, {0, 0}, {NAN, 1}, {INFINITY, 1}}) {
    const Decision decision = decide(differences, 1);
    CHECK(decision.state == State::unknown);
    CHECK(decision.pairs == static_cast<int64_t>(differences.size()));
  }
}

TEST_CASE("decision: the median over rounds, and how many can show one") {
  CHECK(decide_by_median({1, 2, 3, 4, 5}, 1).state == State::unknown);
  const Decision six = decide_by_median({3, 1, 2, 4, 5, 6}, 1);
  CHECK(six.state == State::found);
  CHECK(six.difference == 3.5);
  CHECK(six.low == 1);
  CHECK(six.high == 6);
  CHECK(decide_by_median({3, 1, 2, 4, 5, 6}, 2).state == State::unknown);
  CHECK(decide_by_median({3, 1, 2, 4, 5, 6, 0}, 1).state == State::none_found);
  for (const int64_t tests : {1, 2, 3, 4, 10, 100}) {
    const int64_t fewest = fewest_rounds(tests);
    CHECK(decide_by_median(std::vector<double>(static_cast<size_t>(fewest), 1), tests).state == State::found);
    CHECK(decide_by_median(std::vector<double>(static_cast<size_t>(fewest - 1), 1), tests).state == State::unknown);
  }
  CHECK(fewest_rounds(1) == 6);
}

TEST_CASE("decision: interval, p and the difference that is needed say the same") {
  Generator random(3);
  int found = 0;
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<double> differences(2 + static_cast<size_t>(trial % 5));
    const double shift = 2 * random.uniform();
    for (double& difference : differences) {
      difference = shift + random.uniform() - 0.5;
    }
    for (const int64_t tests : {1, 3, 20}) {
      const Decision decision = decide(differences, tests);
      REQUIRE(decision.known());
      CHECK(decision.found() == (decision.chance < 0.05));
      CHECK(decision.found() == (decision.low > 0 || decision.high < 0));
      CHECK(decision.found() == (std::abs(decision.difference) > (decision.high - decision.low) / 2));
      found += decision.found() ? 1 : 0;
    }
  }
  CHECK(found > 100);
  CHECK(found < 1400);
}

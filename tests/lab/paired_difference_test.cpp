#include "lab/report/paired_difference.h"

#include <doctest/doctest.h>

#include <vector>

using namespace norma::lab;

TEST_CASE("paired_difference: mean, standard error and chance") {
  const auto result = paired_difference({1, 2, 3, 4});
  REQUIRE(result);
  CHECK(result->mean == 2.5);
  CHECK(result->standard_error == doctest::Approx(0.6454972));  // sqrt(5 / 3 / 4)
  CHECK(result->chance == doctest::Approx(0.0304662));          // scipy.stats.ttest_1samp([1, 2, 3, 4], 0)
  CHECK(result->pairs == 4);
  CHECK(paired_difference({-1, -2, -3, -4})->chance == doctest::Approx(0.0304662));
  CHECK(paired_difference({-1, 1})->chance == doctest::Approx(1));
}

TEST_CASE("paired_difference: what too few or too coarse differences do not show") {
  CHECK(!paired_difference({}));
  CHECK(!paired_difference({1}));
  CHECK(!paired_difference({0.1, 0.1, 0.1}));
  REQUIRE(paired_difference({0, 0}));
  CHECK(paired_difference({0, 0})->chance == 1);
}

TEST_CASE("holm: the smallest chance times all, the next times one fewer, never smaller than the one before") {
  CHECK(holm({}).empty());
  CHECK(holm({0.25}) == std::vector<double>{0.25});
  CHECK(holm({0.5, 0.125, 0.0625}) == std::vector<double>{0.5, 0.25, 0.1875});
  CHECK(holm({0.25, 0.25, 0.25}) == std::vector<double>{0.75, 0.75, 0.75});
  CHECK(holm({0.75, 0.5}) == std::vector<double>{1, 1});
}

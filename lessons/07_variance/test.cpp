// What your answers must do: small rows by hand, and long rows far from 0 in float.

#include "exercise.h"

#include <norma/norma.h>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace {

/// 4096 numbers around `offset`, between 2 below and 2 above.
std::vector<float> numbers_around(double offset) {
  norma::Generator generator(7);
  std::vector<float> x(4096);
  for (float& element : x) {
    element = static_cast<float>(offset + 4 * generator.uniform() - 2);
  }
  return x;
}

/// The variance, computed in double from the same floats.
double true_variance(const std::vector<float>& x) {
  double mean = 0;
  for (const float element : x) {
    mean += element;
  }
  mean /= static_cast<double>(x.size());
  double m2 = 0;
  for (const float element : x) {
    m2 += (element - mean) * (element - mean);
  }
  return m2 / static_cast<double>(x.size());
}

bool near(double a, double b) {
  return std::abs(a - b) < 1e-12;
}

/// `of` says which numbers the moments are of. Ends the test at the first fault: the others follow from it.
void check_moments(const std::string& of, const Moments<double>& yours, const Moments<double>& right) {
  REQUIRE_MESSAGE(yours.count == right.count, "\n  ", of, ": expected count ", right.count, ", yours is ", yours.count);
  REQUIRE_MESSAGE(near(yours.mean, right.mean), "\n  ", of, ": expected mean ", right.mean, ", yours is ", yours.mean);
  const bool divided = right.m2 != 0 && near(yours.m2 * right.count, right.m2);
  REQUIRE_MESSAGE(near(yours.m2, right.m2), "\n  ", of, ": expected m2 ", right.m2, ", yours is ", yours.m2,
                  std::string(divided ? "\n  You have divided it by the count." : ""));
}

/// Checks float moments of numbers around `offset` against double; `most`: the relative error that is allowed.
void check_far_from_zero(double offset, double most, const Moments<float>& yours) {
  const std::vector<float> x = numbers_around(offset);
  const double right = true_variance(x);
  const double variance = static_cast<double>(yours.m2) / static_cast<double>(yours.count);
  INFO("\n  4096 floats around ", offset, ": their variance is ", right, ", yours is ", variance,
       std::string(offset == 0 ? "\n  Here no digits get lost. Look at the test with few numbers first."
                               : "\n  Around 0 it is right. Do you subtract two large numbers, such as squares?"));
  REQUIRE(std::abs(variance - right) <= most * right);
}

Moments<float> by_welford(std::span<const float> x) {
  Moments<float> moments;
  for (const float element : x) {
    take_in(moments, element);
  }
  return moments;
}

/// Halves, and halves of these, are merged: as threads do that each have a part.
Moments<float> by_halves(std::span<const float> x) {
  if (x.size() == 1) {
    return {.count = 1, .mean = x[0]};
  }
  const size_t half = x.size() / 2;
  return merged(by_halves(x.first(half)), by_halves(x.subspan(half)));
}

const std::vector<double> kRow = {1, 3, 4, 5, 7};  // the row of lesson 6

}  // namespace

TEST_CASE("gap 1: two passes over five numbers") {
  check_moments("1, 3, 4, 5, 7", two_passes(std::span<const double>(kRow)), {.count = 5, .mean = 4, .m2 = 20});
}

TEST_CASE("gap 1: two passes far from 0") {
  for (const double offset : {0.0, 1e3, 1e4}) {
    check_far_from_zero(offset, 1e-3, two_passes(std::span<const float>(numbers_around(offset))));
  }
}

TEST_CASE("gap 2: Welford takes in five numbers") {
  Moments<double> moments;
  take_in(moments, kRow[0]);
  CHECK_MESSAGE(moments.m2 != 1, "\n  after the number 1, m2 is 1: `after` must be taken from the new mean");
  check_moments("after the number 1", moments, {.count = 1, .mean = 1, .m2 = 0});
  take_in(moments, kRow[1]);
  check_moments("after the numbers 1 and 3", moments, {.count = 2, .mean = 2, .m2 = 2});
  for (size_t i = 2; i < kRow.size(); ++i) {
    take_in(moments, kRow[i]);
  }
  check_moments("after 1, 3, 4, 5, 7", moments, {.count = 5, .mean = 4, .m2 = 20});
}

TEST_CASE("gap 2: Welford far from 0") {
  for (const double offset : {0.0, 1e3, 1e4}) {
    check_far_from_zero(offset, 1e-2, by_welford(numbers_around(offset)));
  }
}

TEST_CASE("gap 3: two parts are merged") {
  const Moments<double> a{.count = 2, .mean = 2, .m2 = 2};   // of 1 and 3
  const Moments<double> b{.count = 3, .mean = 6, .m2 = 14};  // of 4, 5 and 9
  check_moments("merged(1 3, 4 5 9)", merged(a, b), {.count = 5, .mean = 4.4, .m2 = 35.2});
  check_moments("merged(4 5 9, 1 3)", merged(b, a), {.count = 5, .mean = 4.4, .m2 = 35.2});
}

TEST_CASE("gap 3: a part without elements changes nothing") {
  const Moments<double> a{.count = 2, .mean = 2, .m2 = 2};
  check_moments("merged(1 3, nothing)", merged(a, {}), a);
  check_moments("merged(nothing, 1 3)", merged({}, a), a);
  check_moments("merged(nothing, nothing), where 0 / 0 is not a number", merged(Moments<double>{}, {}), {});
}

TEST_CASE("gap 3: merged halves far from 0") {
  for (const double offset : {0.0, 1e3, 1e5}) {
    check_far_from_zero(offset, 1e-3, by_halves(numbers_around(offset)));
  }
}

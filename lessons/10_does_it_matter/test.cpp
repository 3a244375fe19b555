// What your answers must do.

#include "exercise.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

namespace {

bool close(double a, double b) {
  return std::abs(a - b) < 1e-9;
}

std::string name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::better: return "better";
    case Verdict::worse: return "worse";
    case Verdict::matches: return "matches";
    case Verdict::unknown: break;
  }
  return "unknown";
}

void check_verdict(const Interval& interval, double margin, Verdict right) {
  const Verdict yours = verdict_of(interval, margin);
  CHECK_MESSAGE(yours == right, "\n  interval ", interval.low, " to ", interval.high, ", margin ", margin,
                ": expected ", name_of(right), ", yours is ", name_of(yours),
                std::string(interval.low > 0 || interval.high < 0
                                ? "\n  The whole interval is on one side of 0, so the margin does not count."
                                : ""));
}

}  // namespace

TEST_CASE("gap 1: differences of three seeds") {
  const Differences yours = differences_of({91, 90, 92}, {90, 87, 90});
  CHECK_MESSAGE(yours.count == 3, "\n  count: expected 3, yours is ", yours.count);
  CHECK_MESSAGE(close(yours.mean, 2), "\n  the differences are 1, 3 and 2: expected the mean 2, yours is ", yours.mean);
  CHECK_MESSAGE(
      close(yours.deviation, 1), "\n  expected the deviation sqrt((1 + 1 + 0) / 2) = 1, yours is ", yours.deviation,
      close(yours.deviation, std::sqrt(2.0 / 3)) ? std::string("\n  You have divided by count, not by count - 1.")
                                                 : std::string());
}

TEST_CASE("gap 1: seeds go in pairs") {
  // Both norms do well with the second seed, so their difference is the same with all seeds.
  const Differences yours = differences_of({80, 90, 70}, {79, 89, 69});
  CHECK_MESSAGE(close(yours.mean, 1), "\n  mean: expected 1, yours is ", yours.mean);
  CHECK_MESSAGE(close(yours.deviation, 0), "\n  deviation: expected 0, yours is ", yours.deviation,
                "\n  Take the differences first, then their deviation.");
}

TEST_CASE("gap 2: intervals of three seeds and of ten") {
  const Interval three = interval_of({.mean = 2, .deviation = 1, .count = 3});
  const double half = 4.303 / std::sqrt(3.0);
  const bool one_more = close(three.low, 2 - 3.182 / std::sqrt(3.0));
  REQUIRE_MESSAGE(close(three.low, 2 - half), "\n  low: expected 2 - 4.303 * 1 / sqrt(3) = ", 2 - half, ", yours is ",
                  three.low, std::string(one_more ? "\n  Three seeds have 2 degrees of freedom, not 3." : ""));
  REQUIRE_MESSAGE(close(three.high, 2 + half), "\n  high: expected ", 2 + half, ", yours is ", three.high);
  const Interval ten = interval_of({.mean = -1, .deviation = 0.5, .count = 10});
  const double half_of_ten = 2.262 * 0.5 / std::sqrt(10.0);
  CHECK_MESSAGE(close(ten.high, -1 + half_of_ten),
                "\n  high: expected -1 + 2.262 * 0.5 / sqrt(10) = ", -1 + half_of_ten, ", yours is ", ten.high,
                "\n  Ten seeds have 9 degrees of freedom.");
}

TEST_CASE("gap 3: verdicts") {
  check_verdict({.low = 0.2, .high = 3}, 1, Verdict::better);
  check_verdict({.low = -3, .high = -0.2}, 1, Verdict::worse);
  check_verdict({.low = -0.5, .high = 0.8}, 1, Verdict::matches);
  check_verdict({.low = -0.5, .high = 1.5}, 1, Verdict::unknown);
  check_verdict({.low = -1.5, .high = 0.5}, 1, Verdict::unknown);
  check_verdict({.low = -8, .high = 9}, 1, Verdict::unknown);
}

TEST_CASE("gap 3: a small difference that is sure is a difference") {
  check_verdict({.low = 0.1, .high = 0.3}, 1, Verdict::better);
  check_verdict({.low = -0.3, .high = -0.1}, 1, Verdict::worse);
}

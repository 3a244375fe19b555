// What your answers must do. The function is f(x) = x0² x1 + 3 x2, whose slopes can be written down.

#include "exercise.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <string>
#include <vector>

namespace {

double f(const std::vector<double>& x) {
  return x[0] * x[0] * x[1] + 3 * x[2];
}

/// What f has as gradient at x.
std::vector<double> slopes(const std::vector<double>& x) {
  return {2 * x[0] * x[1], x[0] * x[0], 3};
}

const std::vector<double> kX = {1.5, -2, 0.25};

void check_found(const std::string& what, const std::vector<double>& gradient, const std::vector<size_t>& expected) {
  const std::vector<size_t> yours = wrong_elements(f, kX, gradient);
  std::vector<size_t> by_your_gaps;  // what follows from your gaps 1 and 2, whose faults cost those gaps alone
  for (size_t i = 0; i < kX.size(); ++i) {
    if (!near_enough(gradient[i], central_difference(f, kX, i, 1e-6), 1e-6, 1e-4)) {
      by_your_gaps.push_back(i);
    }
  }
  INFO("f(x) = x0² x1 + 3 x2 at x = ", fmt::format("{}, whose gradient is {}", kX, slopes(kX)), "\n  ", what, ": ",
       fmt::format("{}\n  wrong are the elements {}, yours {}", gradient, expected, yours),
       "\n  Compare with the difference of gap 1 by gap 2, with h and atol 1e-6 and rtol 1e-4.");
  const bool follows = yours == by_your_gaps && !near_enough(0, 100, 1e-6, 1e-4);
  CHECK((yours == expected || follows));
}

}  // namespace

TEST_CASE("gap 1: the central difference") {
  const std::vector<double> expected = slopes(kX);
  for (size_t i = 0; i < kX.size(); ++i) {
    const double yours = central_difference(f, kX, i, 1e-6);
    INFO(
        "f(x) = x0² x1 + 3 x2 at x = ", fmt::format("{}, along element {}", kX, i),
        fmt::format("\n  expected {:.6f}, yours {:.6f}", expected[i], yours),
        std::string(std::abs(yours - expected[i] / 2) < 1e-4 ? ", which is half of it: is one point x[i] itself?" : ""),
        std::string(std::abs(yours - expected[i] * 2) < 1e-4 ? ", which is twice that: the distance is 2 h" : ""));
    CHECK(std::abs(yours - expected[i]) < 1e-6);
  }
  const double square = central_difference([](const std::vector<double>& x) { return x[0] * x[0]; }, {3}, 0, 0.5);
  INFO(fmt::format("x² at 3 with a step of 0.5: (3.5² - 2.5²) / 1 is 6, yours {:g}", square),
       "\n  a step to one side only gives 6.5 or 5.5: go to both sides");
  CHECK(std::abs(square - 6) < 1e-12);
}

TEST_CASE("gap 2: near enough") {
  const auto check_pair = [](double gradient, double difference, bool expected) {
    INFO(
        fmt::format("gradient {:g}, difference {:g}, atol 0.001, rtol 0.01: the distance {:g}, allowed {:g}", gradient,
                    difference, std::abs(gradient - difference), 0.001 + 0.01 * std::abs(difference)),
        "\n  expected ", expected,
        std::string(std::isnan(gradient) || std::isnan(difference)
                        ? ". Each comparison with NaN is false, and so its negation is true: compare by <=, without a !"
                        : ""));
    CHECK(near_enough(gradient, difference, 0.001, 0.01) == expected);
  };
  check_pair(100, 100.5, true);
  check_pair(100, 102, false);
  check_pair(0.0005, 0, true);
  check_pair(0.002, 0, false);
  check_pair(-3, 3, false);
  check_pair(std::nan(""), 1, false);
  check_pair(1, std::nan(""), false);
}

TEST_CASE("gap 3: the elements that are wrong") {
  const std::vector<double> right = slopes(kX);
  check_found("a gradient that is right", right, {});
  check_found("a gradient with one wrong element", {right[0], right[1] * 1.01, right[2]}, {1});
  check_found("a gradient with a wrong sign", {-right[0], right[1], right[2]}, {0});
  check_found("a gradient with a NaN", {right[0], std::nan(""), right[2]}, {1});
  check_found("a gradient that is 0 everywhere", {0, 0, 0}, {0, 1, 2});
}

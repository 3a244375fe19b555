// What your answers must do. Slopes are compared with small steps: move one input a little, and look at the result.

#include "exercise.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr double kStep = 1e-5;

/// By how much f moves when x moves by 1, from a step to both sides.
double slope_at(const std::function<double(double)>& f, double x) {
  return (f(x + kStep) - f(x - kStep)) / (2 * kStep);
}

/// The slope that the last entry has for its parent number `i`; NaN if there is no such parent.
double recorded_slope(const Tape& tape, size_t result, size_t i) {
  const std::vector<Parent>& parents = tape.entries.at(result).parents;
  return i < parents.size() ? parents[i].slope : std::nan("");
}

void check_near(const std::string& what, double yours, double expected) {
  INFO(what, "\n  ", fmt::format("expected {:.6g}, yours {:.6g}", expected, yours));
  CHECK(std::abs(yours - expected) <= 1e-6 * (1 + std::abs(expected)));
}

}  // namespace

TEST_CASE("gap 1: the slopes of a quotient") {
  for (const auto& [x, y] : std::vector<std::pair<double, double>>{{3, 2}, {-1, 4}, {0.5, -0.25}}) {
    Tape tape;
    const size_t a = tape.record(x);
    const size_t b = tape.record(y);
    const size_t quotient = divide(tape, a, b);
    const std::string what = fmt::format("a / b at a = {:g}, b = {:g}: ", x, y);
    check_near(what + "its value", tape.entries.at(quotient).value, x / y);
    check_near(what + "the slope of a. Move a alone: how does a / b follow?", recorded_slope(tape, quotient, 0),
               slope_at([y = y](double v) { return v / y; }, x));
    check_near(what + "the slope of b. Its sign: does a / b grow with b?", recorded_slope(tape, quotient, 1),
               slope_at([x = x](double v) { return x / v; }, y));
  }
}

TEST_CASE("gap 2: the slope of tanh") {
  for (const double x : {0.0, 0.5, -1.25, 3.0}) {
    Tape tape;
    const size_t result = tanh_of(tape, tape.record(x));
    check_near(fmt::format("tanh at {:g}: the slope. It is 1 less the square of the result, not of the input", x),
               recorded_slope(tape, result, 0), slope_at([](double v) { return std::tanh(v); }, x));
  }
}

TEST_CASE("gap 3: a chain of two") {
  Tape tape;
  const size_t a = tape.record(1);
  const size_t b = tape.record(10, {{a, 2}});
  const size_t c = tape.record(100, {{b, 3}});
  backward(tape, c);
  check_near("c is made from b with slope 3, b from a with slope 2. The root: the gradient of c",
             tape.entries[c].gradient, 1);
  check_near("the same tape: the gradient of b, 1 * 3", tape.entries[b].gradient, 3);
  check_near("the same tape: the gradient of a, 3 * 2", tape.entries[a].gradient, 6);
}

TEST_CASE("gap 3: an entry that is used twice") {
  Tape tape;
  const size_t a = tape.record(3);
  const size_t b = tape.record(2);
  const size_t sum = tape.record(5, {{a, 1}, {b, 1}});
  const size_t product = tape.record(15, {{sum, 3}, {a, 5}});
  backward(tape, product);
  check_near("(a + b) * a: a gets 5 from the product and 3 from the sum. Do you add them up?", tape.entries[a].gradient,
             8);
  check_near("(a + b) * a: b gets 3 from the sum", tape.entries[b].gradient, 3);
}

TEST_CASE("gap 3: a second walk") {
  Tape tape;
  const size_t a = tape.record(1);
  const size_t b = tape.record(1, {{a, 4}});
  const size_t later = tape.record(1, {{a, 100}, {b, 100}});
  backward(tape, later);
  backward(tape, b);
  check_near("a second walk, whose root is not the last entry. The root's gradient: do you begin at `root`?",
             tape.entries[b].gradient, 1);
  check_near("the same walk: the gradient of a, which is used by the root with slope 4. Do you set all to 0 first?",
             tape.entries[a].gradient, 4);
  check_near("the same walk: the last entry stands after the root. Its gradient", tape.entries[later].gradient, 0);
}

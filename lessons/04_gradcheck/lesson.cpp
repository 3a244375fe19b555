// Lesson 4: gradients compared with small steps: how large a step, and what the comparison cannot see.

#include "picture.h"

#include <norma/norma.h>

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

using namespace norma;  // NOLINT: a lesson reads better without prefixes

namespace {

/// f(x) = x³ / (1 + x²), in float or double.
template <class T>
T f(T x) {
  return x * x * x / (1 + x * x);
}

/// Its derivative, by the rule for quotients.
double slope_of_f(double x) {
  const double below = 1 + x * x;
  return (3 * x * x * below - x * x * x * 2 * x) / (below * below);
}

template <class T>
double one_sided(T x, T h) {
  return static_cast<double>((f(x + h) - f(x)) / h);
}

template <class T>
double central(T x, T h) {
  return static_cast<double>((f(x + h) - f(x - h)) / (2 * h));
}

/// The error of each kind of difference at x = 0.75, for steps from 0.1 down to 1e-13.
void steps(const std::string& folder) {
  const double right = slope_of_f(0.75);
  fmt::print("the slope of f at 0.75 is {:.6f}\n\n", right);
  fmt::print("step   one-sided  central  in float\n");
  lessons::Curve first{.name = "one-sided", .points = {}, .color = lessons::Color::two};
  lessons::Curve second{.name = "central", .points = {}, .color = lessons::Color::one};
  lessons::Curve third{.name = "central in float", .points = {}, .color = lessons::Color::three};
  double h = 1;
  for (int digits = 1; digits <= 13; ++digits) {
    h /= 10;
    const double a = std::abs(one_sided(0.75, h) - right);
    const double b = std::abs(central(0.75, h) - right);
    first.points.emplace_back(h, a);
    second.points.emplace_back(h, b);
    if (digits <= 6) {
      const double c = std::abs(central(0.75F, static_cast<float>(h)) - right);
      third.points.emplace_back(h, c);
      fmt::print("{:.0e}  {:9.0e}  {:7.0e}  {:8.0e}\n", h, a, b, c);
    } else {
      fmt::print("{:.0e}  {:9.0e}  {:7.0e}\n", h, a, b);
    }
  }
  lessons::curve_chart("The error of a difference by its step",
                       "Each curve falls, then rises again as the step shrinks", {.label = "step", .logarithmic = true},
                       {.label = "error of the slope", .logarithmic = true}, {first, second, third})
      .save(folder, "steps");
}

/// x³, with a gradient that forgets a square: 3 x in the place of 3 x².
Tensor wrong_cube(const Tensor& x) {
  return Op("wrong_cube")
      .record({x}, (x * x * x).detach(), {x},
              [](const Tensor& dy, const BackwardContext& context) -> Tensors { return {dy * context.saved(0) * 3}; });
}

Tensor float64(const std::vector<double>& values) {
  return from_vector<double>(values, {static_cast<int64_t>(values.size())}).set_requires_grad();
}

void report(const std::string& name, const GradcheckResult& result) {
  fmt::print("{}: {}\n", name, result ? "passed" : "FAILED");
  if (!result) {
    fmt::print("  {}\n", result.message);
  }
}

/// A mean that divides by the wrong number. Its gradient is right: it is that of this wrong function.
Tensor wrong_mean(const Tensor& x) {
  return sum(x) / (static_cast<double>(x.numel()) - 1);
}

/// x - mean(x), with a gradient that is twice too large: its factor 2 has no business there.
Tensor wrong_centred(const Tensor& x) {
  return Op("wrong_centred")
      .record({x}, (x - mean(x)).detach(), {},
              [](const Tensor& dy, const BackwardContext&) -> Tensors { return {(dy - mean(dy)) * 2}; });
}

}  // namespace

int main(int argc, char** argv) {
  for (const double x : {1.0, 2.0}) {
    fmt::print("x = {}: 3 x is {:g}, 3 x * x is {:g}, and the difference says {:.4f}\n", x, 3 * x, 3 * x * x,
               ((x + 1e-4) * (x + 1e-4) * (x + 1e-4) - (x - 1e-4) * (x - 1e-4) * (x - 1e-4)) / 2e-4);
  }
  fmt::print("\n");
  steps(lessons::picture_folder(argc, argv));

  // Norma's gradcheck.
  fmt::print("\n");
  const auto cube = [](const Tensors& in) { return Tensors{in[0] * in[0] * in[0]}; };
  const auto wrong = [](const Tensors& in) { return Tensors{wrong_cube(in[0])}; };
  report("cube", gradcheck(cube, {float64({1, 2})}));
  report("wrong cube at 1", gradcheck(wrong, {float64({1})}));
  report("wrong cube at 1 and 2", gradcheck(wrong, {float64({1, 2})}));

  // Why the outputs are not simply added up.
  const Tensor x = float64({1, 5, 9});
  fmt::print("\nx - mean(x) = {}\n", to_string(wrong_centred(x).detach()));
  report("wrong x - mean(x), outputs added up",
         gradcheck([](const Tensors& in) { return Tensors{sum(wrong_centred(in[0]))}; }, {x}));
  report("wrong x - mean(x), each output with a weight",
         gradcheck([](const Tensors& in) { return Tensors{wrong_centred(in[0])}; }, {x}));

  // What it cannot see.
  fmt::print("\n");
  report("a mean that divides by 2 where it should by 3",
         gradcheck([](const Tensors& in) { return Tensors{wrong_mean(in[0])}; }, {float64({1, 5, 9})}));
  report("relu away from 0", gradcheck([](const Tensors& in) { return Tensors{relu(in[0])}; }, {float64({-1, 2})}));
  report("relu at 0", gradcheck([](const Tensors& in) { return Tensors{relu(in[0])}; }, {float64({-1, 0})}));
}

// Lesson 6: the backward pass of a norm, term by term.
#include <norma/norma.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "picture.h"

using namespace norma;  // NOLINT: a lesson reads better without prefixes

namespace {

constexpr ReduceOptions kKeep{.keepdim = true};
const TensorOptions kFloat64{.dtype = DType::float64};

/// What the forward pass makes of rows x (rows, n): mean, var, rstd (rows, 1), and xhat (rows, n).
struct Forward {
  Tensor mean, var, rstd, xhat;
};
Forward forward_of(const Tensor& x, double eps) {
  Forward f;
  f.mean = mean(x, {1}, kKeep);
  const Tensor centred = x - f.mean;
  f.var = mean(centred * centred, {1}, kKeep);
  f.rstd = rsqrt(f.var + eps);
  f.xhat = centred * f.rstd;
  return f;
}

/// The three terms of dx, (rows, n) each. g = dy * weight, (rows, n).
struct Terms {
  Tensor own, mean, spread;
};
Terms terms_of(const Forward& f, const Tensor& g) {
  return {.own = f.rstd * g,
          .mean = f.rstd * (0.0 - mean(g, {1}, kKeep)) * ones_like(g),
          .spread = f.rstd * (0.0 - f.xhat) * mean(g * f.xhat, {1}, kKeep)};
}

/// xhat of rows x, on Norma's tape, with a backward pass that may leave one term out.
Tensor norm(const Tensor& x, std::string_view left_out) {
  const Tensor y = forward_of(x.detach(), 1e-5).xhat;  // off the tape
  return Op("lesson_norm").record({x}, y, {x}, [left_out](const Tensor& dy, const BackwardContext& context) -> Tensors {
    const Terms terms = terms_of(forward_of(context.saved(0), 1e-5), dy);
    Tensor dx = zeros_like(dy);
    dx = left_out == "own" ? dx : dx + terms.own;
    dx = left_out == "mean" ? dx : dx + terms.mean;
    dx = left_out == "spread" ? dx : dx + terms.spread;
    return {dx};
  });
}

void print(const std::vector<std::pair<std::string_view, Tensor>>& rows) {
  for (const auto& [name, numbers] : rows) {
    fmt::print("{:<7}", name);
    for (const double value : numbers.to_vector<double>()) {
      fmt::print(" {:7.3f}", value == 0 ? 0.0 : value);  // no -0
    }
    fmt::print("\n");
  }
}

Tensor row(const std::vector<double>& numbers) {
  return from_vector(numbers, {1, static_cast<int64_t>(numbers.size())}, kFloat64);
}

/// Three bars for each element of a row, the terms, and a line where their sum is.
void draw_terms(const Terms& terms, const std::vector<double>& sum, std::string_view folder) {
  lessons::Picture picture(230, "The three terms of dx", "Bars of the three terms of each element of dx.");
  constexpr double kZero = 100;
  constexpr double kUnit = 70;
  const Tensor bars[] = {terms.own, terms.mean, terms.spread};
  for (size_t i = 0; i < sum.size(); ++i) {
    double left = 30 + 66 * static_cast<double>(i);
    picture.line(left, kZero - sum[i] * kUnit, left + 54, kZero - sum[i] * kUnit, lessons::Color::ink, 2.5);
    picture.text(left + 27, 200, fmt::format("dx[{}]", i), {.anchor = "middle"});
    for (size_t bar = 0; bar < 3; ++bar, left += 18.5) {
      const double height = bars[bar].to_vector<double>()[i] * kUnit;
      picture.box(left, kZero - std::max(height, 0.0), 17, std::abs(height), static_cast<lessons::Color>(bar + 3));
    }
  }
  picture.line(24, kZero, 356, kZero, lessons::Color::faint);
  picture.text(30, 222, "own", {.color = lessons::Color::one});
  picture.text(80, 222, "mean", {.color = lessons::Color::two});
  picture.text(140, 222, "spread", {.color = lessons::Color::three});
  picture.text(356, 222, "line: their sum, dx", {.anchor = "end"});
  picture.save(folder, "terms");
}

}  // namespace

int main(int argc, char** argv) {
  const std::string folder = lessons::picture_folder(argc, argv);
  const Tensor x = row({1, 3, 4, 5, 7});
  const Tensor weight = row({2, 1, 3, 1, 2});
  const Tensor dy = row({1, 2, 0, -1, 1});
  const Tensor g = dy * weight;
  const Forward f = forward_of(x, /* eps= */ 0);
  print({{"x", x}, {"mean", f.mean}, {"var", f.var}, {"rstd", f.rstd}});
  print({{"xhat", f.xhat}, {"weight", weight}, {"dy", dy}, {"g", g}});
  const Terms terms = terms_of(f, g);
  fmt::print("\nmean(g) = {:.3f}, sum(g * xhat) = {:.3f}\n", mean(g).item<double>(), sum(g * f.xhat).item<double>());
  const Tensor dx = terms.own + terms.mean + terms.spread;
  const Tensor by_norma = normalize_backward(dy, x, {.reduce = {1}, .affine = {0, 1}, .eps = 0}, weight)[0];
  print({{"own", terms.own}, {"mean", terms.mean}, {"spread", terms.spread}, {"dx", dx}, {"Norma", by_norma}});
  draw_terms(terms, dx.to_vector<double>(), folder);

  // Each term left out once: what gradcheck says, and what 200 steps down a loss do to x.
  fmt::print("\nleft out   gradcheck  worst error    loss  mean of x  deviation of x\n");
  std::vector<lessons::Curve> means;
  std::vector<lessons::Curve> deviations;
  for (const std::string_view left_out : {"nothing", "own", "mean", "spread"}) {
    Generator random(6);
    Tensor x_now = randn({4, 8}, kFloat64, random);
    const Tensor target = 2.0 * randn({4, 8}, kFloat64, random) + 1.0;
    const GradcheckResult checked = gradcheck([&](const Tensors& in) { return Tensors{norm(in[0], left_out)}; },
                                              {x_now.detach().set_requires_grad()});
    lessons::Curve of_means{.name = fmt::format("left out: {}", left_out),
                            .color = static_cast<lessons::Color>(means.size() + 3)};
    lessons::Curve of_deviations = of_means;
    Tensor loss;
    for (int step = 0; step <= 200; ++step) {
      const Forward now = forward_of(x_now, 0);
      of_means.points.emplace_back(step, mean(now.mean).item<double>());
      of_deviations.points.emplace_back(step, mean(1.0 / now.rstd).item<double>());
      const Tensor leaf = x_now.detach().set_requires_grad();
      const Tensor miss = norm(leaf, left_out) - target;
      loss = mean(miss * miss);
      loss.backward();
      x_now = x_now - leaf.grad();
    }
    fmt::print("{:<10} {:<9} {:12.6f} {:7.3f} {:10.2f} {:14.2f}\n", left_out, checked ? "passed" : "failed",
               checked.worst, loss.item<double>(), of_means.points.back().second, of_deviations.points.back().second);
    means.push_back(of_means);
    deviations.push_back(of_deviations);
  }
  means.pop_back();                          // without the spread term, the mean is that of "nothing",
  deviations.erase(deviations.begin() + 2);  // and without the mean term, the deviation
  lessons::curve_chart("The mean of x", "It runs off without the mean term.", {"step"}, {"mean of x"}, means)
      .save(folder, "means");
  lessons::curve_chart("The deviation of x", "It grows without its term.", {"step"}, {"deviation of x"}, deviations)
      .save(folder, "deviations");
}

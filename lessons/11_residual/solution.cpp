// Lesson 11: our answers.

#include "exercise.h"

#include <cmath>

std::vector<double> rms_norm_backward(const std::vector<double>& x, const std::vector<double>& weight,
                                      const std::vector<double>& dy, double eps) {
  // GAP 1
  const auto n = static_cast<double>(x.size());
  double squares = 0;
  for (const double v : x) {
    squares += v * v;
  }
  const double r = 1 / std::sqrt(squares / n + eps);
  double g_xhat = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    g_xhat += dy[i] * weight[i] * x[i] * r;
  }
  std::vector<double> dx;
  for (size_t i = 0; i < x.size(); ++i) {
    dx.push_back(r * (dy[i] * weight[i] - x[i] * r * g_xhat / n));
  }
  return dx;
}

Tensor block(const Tensor& x, Placement placement, const Layer& branch, const Layer& norm_in, const Layer& norm_out) {
  // GAP 2
  switch (placement) {
    case Placement::none: return x + branch(x);
    case Placement::pre: return x + branch(norm_in(x));
    case Placement::post: return norm_out(x + branch(x));
    case Placement::peri: return x + norm_out(branch(norm_in(x)));
  }
  return x;
}

double branch_factor(int depth, bool pre) {
  // GAP 3: a branch that reads the stream multiplies its variance by 1 + s², one that reads a normed stream adds s²
  return pre ? 1 / std::sqrt(depth) : std::sqrt(std::pow(2, 1.0 / depth) - 1);
}

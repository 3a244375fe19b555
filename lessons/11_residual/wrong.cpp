// Lesson 11: answers that the tests must not pass, and what they must say.
#include "wrong.h"
#include "exercise.h"

#include <cmath>

namespace ours {
#include "solution.cpp"
}

std::vector<double> rms_norm_backward(const std::vector<double>& x, const std::vector<double>& weight,
                                      const std::vector<double>& dy, double eps) {
  const auto n = static_cast<double>(x.size());
  double squares = 0;
  double mean = 0;
  double sum_g = 0;
  double dy_xhat = 0;
  double g_xhat = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    squares += x[i] * x[i];
    mean += x[i] / n;
    sum_g += dy[i] * weight[i];
  }
  const double r = 1 / std::sqrt(squares / n + eps);
  for (size_t i = 0; i < x.size(); ++i) {
    dy_xhat += dy[i] * x[i] * r;
    g_xhat += dy[i] * weight[i] * x[i] * r;
  }
  std::vector<double> dx = ours::rms_norm_backward(x, weight, dy, eps);
  for (size_t i = 0; i < x.size(); ++i) {
    const double g = dy[i] * weight[i];
    switch (wrong_answer()) {
      case 1:  // gap 1 must say "with the mean term"
        dx[i] = r * (g - sum_g / n - x[i] * r * g_xhat / n);
        break;
      case 2:  // gap 1 must say "r is a constant"
        dx[i] = r * g;
        break;
      case 3:  // gap 1 must say "divide the sum by n"
        dx[i] = r * (g - x[i] * r * g_xhat);
        break;
      case 4:  // gap 1 must say "without the factor r in front"
        dx[i] = g - x[i] * r * g_xhat / n;
        break;
      case 5:  // gap 1 must say "without the weight"
        dx[i] = r * (dy[i] - x[i] * r * dy_xhat / n);
        break;
      case 6:  // gap 1 must say "xhat is x * r"
        dx[i] = r * (g - (x[i] - mean) * r * g_xhat / n);
        break;
      case 7:  // gap 1 must say "eps"
        dx[i] = ours::rms_norm_backward(x, weight, dy, 0)[i];
        break;
      default: break;
    }
  }
  return dx;
}

Tensor block(const Tensor& x, Placement placement, const Layer& branch, const Layer& norm_in, const Layer& norm_out) {
  const int wrong = wrong_answer();
  switch (placement == Placement::none ? 0 : wrong) {
    case 11:  // gap 2 must say "norms the stream"
      return placement == Placement::pre ? norm_in(x) + branch(norm_in(x))
                                         : ours::block(x, placement, branch, norm_in, norm_out);
    case 12:  // gap 2 must say "outside the sum"
      return placement == Placement::post ? x + norm_out(branch(x))
                                          : ours::block(x, placement, branch, norm_in, norm_out);
    case 13:  // gap 2 must say "norm_in and norm_out are two layers"
      return placement == Placement::peri ? x + norm_in(branch(norm_in(x)))
                                          : ours::block(x, placement, branch, norm_in, norm_out);
    case 14:  // gap 2 must say "lacks x"
      return placement == Placement::pre ? branch(norm_in(x)) : ours::block(x, placement, branch, norm_in, norm_out);
    case 15:  // gap 2 must say "norms the stream"
      return placement == Placement::peri ? norm_out(x + branch(norm_in(x)))
                                          : ours::block(x, placement, branch, norm_in, norm_out);
    default: return ours::block(x, placement, branch, norm_in, norm_out);
  }
}

double branch_factor(int depth, bool pre) {
  switch (wrong_answer()) {
    case 21:  // gap 3 must say "multiplies"
      return 1 / std::sqrt(depth);
    case 22:  // gap 3 must say "its square"
      return pre ? 1.0 / depth : std::pow(2, 1.0 / depth) - 1;
    case 23:  // gap 3 must say "adds"
      return std::sqrt(std::pow(2, 1.0 / depth) - 1);
    case 24:  // gap 3 must say "expected 2"
      return ours::branch_factor(depth + 1, pre);
    default: return ours::branch_factor(depth, pre);
  }
}

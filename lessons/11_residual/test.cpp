// What your answers must do: Norma's RMS norm, blocks of layers that can be told apart, and variances that add up.

#include "exercise.h"

#include <norma/norma.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

namespace {

using Numbers = std::vector<double>;

Tensor tensor(const Numbers& values) {
  return norma::from_vector(values, {static_cast<int64_t>(values.size())});
}

bool near(const Numbers& a, const Numbers& b) {
  for (size_t i = 0; i < a.size() && a.size() == b.size(); ++i) {
    if (!(std::abs(a[i] - b[i]) <= 1e-9 * (1 + std::abs(b[i])))) {
      return false;
    }
  }
  return a.size() == b.size();
}

/// Which slip gives this dx, if it is one that many people make.
std::string slip(const Numbers& dx, const Numbers& x, const Numbers& weight, const Numbers& dy, double eps) {
  const Tensor in = tensor(x);
  const Tensor g = tensor(dy) * tensor(weight);
  const Tensor r = norma::rsqrt(norma::mean(in * in) + eps);
  const Tensor xhat = in * r;
  const auto is = [&](const Tensor& formula) { return near(dx, formula.to_vector<double>()); };
  if (is(r * (g - norma::mean(g) - xhat * norma::mean(g * xhat)))) {
    return "your dx is the formula with the mean term, which a norm has that subtracts the mean";
  }
  if (is(r * g)) {
    return "your dx is right if r is a constant. But r depends on every x";
  }
  if (is(r * (g - xhat * norma::sum(g * xhat)))) {
    return "mean(g * xhat): divide the sum by n";
  }
  if (is(g - xhat * norma::mean(g * xhat))) {
    return "your dx is the formula without the factor r in front";
  }
  if (is(r * (tensor(dy) - xhat * norma::mean(tensor(dy) * xhat)))) {
    return "your dx is the formula without the weight: g is dy * weight";
  }
  if (is(r * (g - (in - norma::mean(in)) * r * norma::mean(g * xhat)))) {
    return "xhat is x * r: no mean is subtracted";
  }
  return "compare with lesson 6: dx = r * (g - mean(g) - xhat * mean(g * xhat)), of which a term must go";
}

void check_backward(const std::string& what, const Numbers& x, const Numbers& weight, const Numbers& dy, double eps) {
  Tensor in = tensor(x).set_requires_grad();
  norma::backward(norma::rms_norm(in, {in.numel()}, tensor(weight), {.eps = eps}), tensor(dy));
  const Numbers yours = rms_norm_backward(x, weight, dy, eps);
  const Numbers expected = in.grad().to_vector<double>();
  REQUIRE(yours.size() == expected.size());
  INFO("\n  ", what, ": ", slip(yours, x, weight, dy, eps),
       fmt::format("\n  element 0: expected {:.6f}, yours {:.6f}", expected[0], yours[0]));
  REQUIRE(near(yours, expected));
}

double variance_after(int depth, bool pre, double factor) {
  double variance = 1;
  for (int i = 0; i < depth; ++i) {
    variance += factor * factor * (pre ? 1 : variance);
  }
  return variance;
}

}  // namespace

TEST_CASE("gap 1: the gradient of RMS norm") {
  const Numbers x = {1, -3, 4, 5, 7};
  const Numbers dy = {1, 2, 0, -1, 1};
  check_backward("eps 0", x, {2, 1, 3, 1, -2}, dy, 0);
  check_backward("with eps 0 you are right; now eps is 0.5", x, {2, 1, 3, 1, -2}, dy, 0.5);
}

TEST_CASE("gap 2: where the norms stand") {
  // Layers that can be told apart in the result, and in the order of their calls.
  std::string calls;
  const auto layer = [&](char name, double factor, double offset) {
    return [&calls, name, factor, offset](const Tensor& x) {
      calls += name;
      return x * factor + offset;
    };
  };
  const Layer branch = layer('b', 3, 1);
  const Layer in = layer('i', 5, 2);
  const Layer out = layer('o', 7, 4);
  const auto of = [&](Placement placement) {
    calls.clear();
    return block(norma::scalar(10, norma::DType::float64), placement, branch, in, out).item<double>();
  };
  const double none = of(Placement::none);
  CHECK_MESSAGE(none == 41, "\n  none: expected x + branch(x), which is 10 + 31 = 41 here; yours is ", none);

  const double pre = of(Placement::pre);
  CHECK_MESSAGE(pre != 157, "\n  pre: your block lacks x, the stream");
  CHECK_MESSAGE(pre != 209, "\n  pre: your block norms the stream, too: only the branch may read the normed x");
  CHECK_MESSAGE(pre == 167, "\n  pre: expected 10 + branch(norm_in(10)) = 167 here, yours is ", pre,
                "; calls, in order (in, branch, out): ", calls);

  const double post = of(Placement::post);
  CHECK_MESSAGE(post != 231, "\n  post: the norm stands outside the sum, over the stream, not on the branch");
  CHECK_MESSAGE(post == 291, "\n  post: expected norm_out(10 + branch(10)) = 291 here, yours is ", post,
                "; calls, in order (in, branch, out): ", calls);

  const double peri = of(Placement::peri);
  CHECK_MESSAGE(peri != 1173, "\n  peri: your block norms the stream, which only post does");
  CHECK_MESSAGE(calls != "ibi", "\n  peri: norm_in and norm_out are two layers with weights of their own");
  CHECK_MESSAGE(peri == 1113, "\n  peri: expected 10 + norm_out(branch(norm_in(10))) = 1113 here, yours is ", peri,
                "; calls, in order (in, branch, out): ", calls);
}

TEST_CASE("gap 3: a stream whose variance doubles") {
  for (const bool pre : {true, false}) {
    for (const int depth : {1, 8, 100}) {
      const double yours = branch_factor(depth, pre);
      const double variance = variance_after(depth, pre, yours);
      const bool square = depth > 1 && std::abs(variance_after(depth, pre, std::sqrt(yours)) - 2) < 1e-9;
      INFO("\n  ", depth, " blocks, ", std::string(pre ? "pre" : "none"), ": with your factor ", yours,
           " the variance ends at ", variance, ", expected 2",
           std::string(square ? "\n  Your number is its square: a variance grows by the square of a factor"
                       : pre  ? "\n  A block that reads a normed stream adds s² to the variance, whatever it was"
                              : "\n  A block that reads the stream itself multiplies the variance by 1 + s²"));
      REQUIRE(std::abs(variance - 2) <= 1e-9);
    }
  }
}

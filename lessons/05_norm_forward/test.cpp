// What your answers must do. Norma's norms say what is right.

#include "exercise.h"

#include <norma/norma.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace {

using norma::Tensor;
using Numbers = std::vector<double>;

Tensor tensor(const Numbers& values) {
  return norma::from_vector<double>(values, {static_cast<int64_t>(values.size())});
}

/// A layer norm with the mean and rstd that your gap 1 gives: a fault of gap 1 costs gap 1 alone.
Numbers with_your_statistics(const Numbers& x, const Numbers& weight, const Numbers& bias, double eps) {
  const RowStatistics row = statistics_of(x.data(), static_cast<int64_t>(x.size()), eps);
  Numbers y;
  for (size_t i = 0; i < x.size(); ++i) {
    y.push_back((x[i] - row.mean) * row.rstd * weight[i] + bias[i]);
  }
  return y;
}

/// `count` numbers that are not special, about `middle`.
Numbers some(int64_t count, double middle) {
  norma::Generator generator(7);
  return (norma::randn({count}, {.dtype = norma::DType::float64}, generator) + middle).to_vector<double>();
}

void check_near(const std::string& what, double yours, double expected) {
  INFO(what, fmt::format(": expected {:.6g}, yours {:.6g}", expected, yours));
  CHECK(std::abs(yours - expected) <= 1e-9 * (1 + std::abs(expected)));
}

bool all_near(const Numbers& a, const Numbers& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](double left, double right) { return std::abs(left - right) <= 1e-9; });
}

/// `yours` must be `expected`, or what follows from your gap 1.
void check_all(const std::string& what, const Numbers& yours, const Numbers& expected, const Numbers& by_your_gap_1) {
  INFO(what);
  REQUIRE(yours.size() == expected.size());
  if (all_near(yours, by_your_gap_1)) {
    return;
  }
  for (size_t i = 0; i < yours.size(); ++i) {
    INFO(fmt::format("\n  element {}: expected {:.6f}, yours {:.6f}", i, expected[i], yours[i]));
    REQUIRE(std::abs(yours[i] - expected[i]) <= 1e-9);
  }
}

}  // namespace

TEST_CASE("gap 1: mean and variance and rstd") {
  const Numbers x = {1, 3, 4, 5, 7};
  const RowStatistics row = statistics_of(x.data(), 5, 0);
  check_near("1 3 4 5 7, the mean", row.mean, 4);
  check_near("1 3 4 5 7, the variance. The squares add up to 20: divide by 5, not by 4", row.var, 4);
  check_near("1 3 4 5 7, rstd with eps 0", row.rstd, 0.5);
  check_near("1 3 4 5 7, rstd with eps 5: 1 / sqrt(4 + 5). Is eps inside the root?", statistics_of(x.data(), 5, 5).rstd,
             1.0 / 3);
  check_near("the first three of them only (count is 3), the mean", statistics_of(x.data(), 3, 0).mean, 8.0 / 3);
  const Numbers same = {2, 2, 2};
  check_near("2 2 2, rstd with eps 0.25: the variance is 0", statistics_of(same.data(), 3, 0.25).rstd, 2);
}

TEST_CASE("gap 2: the layer norm of a row") {
  const Numbers row = {1, 3, 4, 5, 7};
  const Numbers row_weight = {2, 2, 2, 1, 1};
  const Numbers row_bias = {10, 10, 10, 0, 0};
  check_all("the page's row 1 3 4 5 7 with the page's weight and bias, eps 0",
            layer_norm_of(row, row_weight, row_bias, 0), {7, 9, 10, 0.5, 1.5},
            with_your_statistics(row, row_weight, row_bias, 0));
  const Numbers x = some(7, 3);
  const Numbers weight = some(7, 1);
  const Numbers bias = some(7, -1);
  check_all("7 random numbers with eps 0.1, beside Norma's layer_norm", layer_norm_of(x, weight, bias, 0.1),
            norma::layer_norm(tensor(x), {7}, tensor(weight), tensor(bias), {.eps = 0.1}).to_vector<double>(),
            with_your_statistics(x, weight, bias, 0.1));
}

TEST_CASE("gap 3: group norm") {
  const ImageSizes sizes{.n = 2, .c = 6, .h = 3, .w = 4};
  const Numbers x = some(sizes.n * sizes.c * sizes.h * sizes.w, 2);
  const Tensor images = norma::view(tensor(x), {sizes.n, sizes.c, sizes.h, sizes.w});
  const Numbers ones(6, 1);
  const Numbers zeros(6, 0);
  const Numbers weight = some(6, 1);
  const Numbers bias = some(6, -1);
  for (const int64_t groups : {1, 2, 3, 6}) {
    const std::string what =
        fmt::format("sizes (2, 6, 3, 4), {} groups: {} sets of {} elements", groups, 2 * groups, 72 / groups);
    // The sets are runs of memory, one after the other.
    const auto by_your_gap_1 = [&, groups = groups](const Numbers& w, const Numbers& b) {
      Numbers y;
      for (int64_t at = 0; at < 144; at += 72 / groups) {
        Numbers of_w;
        Numbers of_b;
        for (int64_t i = at; i < at + 72 / groups; ++i) {
          of_w.push_back(w[static_cast<size_t>(i / 12 % 6)]);
          of_b.push_back(b[static_cast<size_t>(i / 12 % 6)]);
        }
        const Numbers part = with_your_statistics({x.begin() + at, x.begin() + at + 72 / groups}, of_w, of_b, 1e-5);
        y.insert(y.end(), part.begin(), part.end());
      }
      return y;
    };
    check_all(what + ", weight 1 and bias 0", group_norm_of(x, sizes, groups, ones, zeros, 1e-5),
              norma::group_norm(images, groups, tensor(ones), tensor(zeros), {.eps = 1e-5}).to_vector<double>(),
              by_your_gap_1(ones, zeros));
    check_all(
        what +
            ". With weight 1 and bias 0 you are right.\n  Element i is of channel i / 12 % 6 (3 rows of 4; 6 channels)",
        group_norm_of(x, sizes, groups, weight, bias, 1e-5),
        norma::group_norm(images, groups, tensor(weight), tensor(bias), {.eps = 1e-5}).to_vector<double>(),
        by_your_gap_1(weight, bias));
  }
}

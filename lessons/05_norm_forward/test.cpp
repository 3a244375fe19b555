// What your answers must do. Norma's norms say what is right.

#include "exercise.h"

#include <norma/norma.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <string>
#include <vector>

namespace {

using norma::Tensor;
using Numbers = std::vector<double>;

Tensor tensor(const Numbers& values) {
  return norma::from_vector<double>(values, {static_cast<int64_t>(values.size())});
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

void check_all(const std::string& what, const Numbers& yours, const Numbers& expected) {
  INFO(what);
  REQUIRE(yours.size() == expected.size());
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
  check_all("the page's row 1 3 4 5 7 with the page's weight and bias, eps 0. (This gap builds on gap 1)",
            layer_norm_of({1, 3, 4, 5, 7}, {2, 2, 2, 1, 1}, {10, 10, 10, 0, 0}, 0), {7, 9, 10, 0.5, 1.5});
  const Numbers x = some(7, 3);
  const Numbers weight = some(7, 1);
  const Numbers bias = some(7, -1);
  check_all("7 random numbers with eps 0.1, beside Norma's layer_norm. (This gap builds on gap 1)",
            layer_norm_of(x, weight, bias, 0.1),
            norma::layer_norm(tensor(x), {7}, tensor(weight), tensor(bias), {.eps = 0.1}).to_vector<double>());
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
    check_all(what + ", weight 1 and bias 0. (This gap builds on gap 1)",
              group_norm_of(x, sizes, groups, ones, zeros, 1e-5),
              norma::group_norm(images, groups, tensor(ones), tensor(zeros), {.eps = 1e-5}).to_vector<double>());
    check_all(
        what +
            ". With weight 1 and bias 0 you are right.\n  Element i is of channel i / 12 % 6 (3 rows of 4; 6 channels)",
        group_norm_of(x, sizes, groups, weight, bias, 1e-5),
        norma::group_norm(images, groups, tensor(weight), tensor(bias), {.eps = 1e-5}).to_vector<double>());
  }
}

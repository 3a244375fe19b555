// What your answers must do: the page's row, central differences, and Norma's own norm.

#include "exercise.h"

#include <norma/norma.h>

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace {

/// The row of the page.
Row page_row() {
  return {.x = {1, 3, 4, 5, 7}, .weight = {2, 1, 3, 1, 2}, .dy = {1, 2, 0, -1, 1}, .mean = 4, .rstd = 0.5};
}

/// A row that no round number helps: 7 random elements, with its statistics.
Row random_row(double correction) {
  norma::Generator generator(6);
  const auto numbers = [&](double offset) {
    return (norma::randn({7}, {.dtype = norma::DType::float64}, generator) + offset).to_vector<double>();
  };
  Row row{.x = numbers(3), .weight = numbers(1), .dy = numbers(0), .correction = correction};
  row.mean = 0;
  for (const double x : row.x) {
    row.mean += x / 7;
  }
  double squares = 0;
  for (const double x : row.x) {
    squares += (x - row.mean) * (x - row.mean);
  }
  row.rstd = 1 / std::sqrt(squares / (7 - correction) + 1e-5);
  return row;
}

bool close(double a, double b) {
  return std::abs(a - b) <= 1e-9 * (1 + std::abs(b));
}

/// The loss of a row, sum(dy * y) without bias, with mean and rstd taken from x anew.
double loss_of(const Row& row, const std::vector<double>& x) {
  const auto n = static_cast<double>(x.size());
  double mean = 0;
  for (const double v : x) {
    mean += v / n;
  }
  double squares = 0;
  for (const double v : x) {
    squares += (v - mean) * (v - mean);
  }
  const double rstd = 1 / std::sqrt(squares / (n - row.correction) + 1e-5);
  double loss = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    loss += row.dy[i] * row.weight[i] * (x[i] - mean) * rstd;
  }
  return loss;
}

/// The central difference for each x, as in lesson 4.
std::vector<double> differences_of(const Row& row) {
  constexpr double kStep = 1e-5;
  std::vector<double> result;
  for (size_t i = 0; i < row.x.size(); ++i) {
    std::vector<double> x = row.x;
    x[i] += kStep;
    const double above = loss_of(row, x);
    x[i] -= 2 * kStep;
    result.push_back((above - loss_of(row, x)) / (2 * kStep));
  }
  return result;
}

/// Says which slip gives this dx, if it is one that many people make.
std::string likely_slip(const Row& row, const std::vector<double>& dx) {
  const auto n = static_cast<double>(row.x.size());
  double sum_g = 0;
  double sum_g_xhat = 0;
  for (size_t i = 0; i < row.x.size(); ++i) {
    sum_g += row.dy[i] * row.weight[i];
    sum_g_xhat += row.dy[i] * row.weight[i] * (row.x[i] - row.mean) * row.rstd;
  }
  const auto agrees = [&](auto formula) {
    for (size_t i = 0; i < dx.size(); ++i) {
      const double g = row.dy[i] * row.weight[i];
      if (!close(dx[i], formula(i, g, (row.x[i] - row.mean) * row.rstd))) {
        return false;
      }
    }
    return true;
  };
  if (dx.size() != row.x.size()) {
    return "dx must have as many elements as x";
  }
  using Factors = std::vector<std::pair<double, std::string>>;  // each with its slip; the right one comes first
  const double m = n - row.correction;
  const Factors of_all = {{row.rstd, ""}, {1, "lacks the factor rstd in front of the bracket"}};
  const Factors of_g = {{1, ""}, {0, "lacks its first term, g"}};
  const Factors of_sum = {{-1 / n, ""},
                          {0, "lacks the mean term, - mean(g)"},
                          {1 / n, "adds mean(g), which must be subtracted"},
                          {-1, "has sum(g) where the formula has mean(g): divide by n"}};
  const Factors of_spread = {{-1 / m, ""},
                             {0, "lacks the spread term, - xhat * sum(g * xhat) / (n - correction)"},
                             {1 / m, "adds the spread term, which must be subtracted"},
                             {-1, "does not divide sum(g * xhat): divide by n - correction"},
                             {-1 / n, "divides the spread term by n; with a correction it is n - correction"}};
  for (const auto& [all, of_all_says] : of_all) {
    for (const auto& [first, first_says] : of_g) {
      for (const auto& [mean, mean_says] : of_sum) {
        for (const auto& [spread, spread_says] : of_spread) {
          if (agrees([&](size_t, double g, double xhat) {
                return all * (first * g + mean * sum_g + spread * xhat * sum_g_xhat);
              })) {
            std::string text;
            for (const std::string& says : {of_all_says, first_says, mean_says, spread_says}) {
              text += says.empty() ? "" : (text.empty() ? "your dx " : ", and ") + says;
            }
            return text;
          }
        }
      }
    }
  }
  if (agrees(
          [&](size_t i, double, double xhat) { return row.rstd * (row.dy[i] - sum_g / n - xhat * sum_g_xhat / m); })) {
    return "your dx begins with dy; it must begin with g = dy * weight";
  }
  return "compare the three terms for one element with the table of the page";
}

}  // namespace

TEST_CASE("gap 1: the two sums of a row") {
  const RowSums sums = sums_of(page_row());
  CHECK_MESSAGE(close(sums.g, 5), "sum(g) of the page's row is 2 + 2 + 0 - 1 + 2 = 5, and yours is ", sums.g,
                ". g is dy * weight.");
  CHECK_MESSAGE(close(sums.g_xhat, -1.5),
                "sum(g * xhat) of the page's row is -3 - 1 + 0 - 0.5 + 3 = -1.5, and yours is ", sums.g_xhat,
                ". xhat is (x - mean) * rstd.");
}

TEST_CASE("gap 2: dx of the page's row") {
  const Row row = page_row();
  const std::vector<double> dx = gradient_of_x(row, {.g = 5, .g_xhat = -1.5});
  INFO("likely: ", likely_slip(row, dx));
  REQUIRE(dx.size() == 5);
  const std::vector<double> expected = {0.275, 0.425, -0.5, -0.925, 0.725};
  for (size_t i = 0; i < 5; ++i) {
    INFO("element ", i);
    CHECK(dx[i] == doctest::Approx(expected[i]));
  }
}

TEST_CASE("gap 2: dx against central differences") {
  for (const double correction : {0.0, 1.0}) {
    const Row row = random_row(correction);
    RowSums sums;
    for (size_t i = 0; i < row.x.size(); ++i) {
      sums.g += row.dy[i] * row.weight[i];
      sums.g_xhat += row.dy[i] * row.weight[i] * (row.x[i] - row.mean) * row.rstd;
    }
    const std::vector<double> dx = gradient_of_x(row, sums);
    INFO("correction ", correction, ", likely: ", likely_slip(row, dx));
    REQUIRE(dx.size() == row.x.size());
    const std::vector<double> differences = differences_of(row);
    double sum = 0;
    for (size_t i = 0; i < dx.size(); ++i) {
      INFO("element ", i, ": dx must be the slope of the loss along x[i]");
      CHECK(std::abs(dx[i] - differences[i]) <= 1e-7);
      sum += dx[i];
    }
    CHECK_MESSAGE(std::abs(sum) <= 1e-9, "sum(dx) must be 0: moving all x together does not change y. It is ", sum);
  }
}

TEST_CASE("gap 3: dweight and dbias add up over the rows") {
  std::vector<double> dweight(5, 0);
  std::vector<double> dbias(5, 0);
  const Row row = page_row();
  add_parameter_gradients(row, dweight, dbias);
  const std::vector<double> xhat = {-1.5, -0.5, 0, 0.5, 1.5};
  for (size_t i = 0; i < 5; ++i) {
    INFO("element ", i, " after one row: dweight takes dy * xhat, dbias takes dy");
    CHECK(dweight[i] == doctest::Approx(row.dy[i] * xhat[i]));
    CHECK(dbias[i] == doctest::Approx(row.dy[i]));
  }
  add_parameter_gradients(row, dweight, dbias);
  for (size_t i = 0; i < 5; ++i) {
    INFO("element ", i, " after the same row twice: both must have doubled. Did you write = instead of +=?");
    CHECK(dweight[i] == doctest::Approx(2 * row.dy[i] * xhat[i]));
    CHECK(dbias[i] == doctest::Approx(2 * row.dy[i]));
  }
}

TEST_CASE("gap 3: dweight and dbias are those of Norma's own norm") {
  using namespace norma;  // NOLINT
  constexpr int64_t kRows = 3;
  constexpr int64_t kColumns = 6;
  const TensorOptions float64{.dtype = DType::float64};
  Generator generator(7);
  const Tensor x = randn({kRows, kColumns}, float64, generator) + 2.0;
  const Tensor weight = randn({kColumns}, float64, generator);
  const Tensor bias = randn({kColumns}, float64, generator);
  const Tensor dy = randn({kRows, kColumns}, float64, generator);
  const NormSpec spec{.reduce = {1}, .affine = {1}, .eps = 1e-3, .correction = 1};
  const Tensors expected = normalize_backward(dy, x, spec, weight, bias);
  const NormStatistics statistics = norm_statistics(x, spec);

  const auto row_of = [&](const Tensor& t, int64_t r) { return narrow(t, 0, r, 1).to_vector<double>(); };
  std::vector<double> dweight(kColumns, 0);
  std::vector<double> dbias(kColumns, 0);
  for (int64_t r = 0; r < kRows; ++r) {
    const auto at = static_cast<size_t>(r);
    const Row row{.x = row_of(x, r),
                  .weight = weight.to_vector<double>(),
                  .dy = row_of(dy, r),
                  .mean = statistics.mean.to_vector<double>()[at],
                  .rstd = 1 / std::sqrt(statistics.var.to_vector<double>()[at] + spec.eps),
                  .correction = 1};
    add_parameter_gradients(row, dweight, dbias);
  }
  for (size_t i = 0; i < kColumns; ++i) {
    INFO("element ", i, " of dweight and dbias");
    CHECK(dweight[i] == doctest::Approx(expected[1].to_vector<double>()[i]));
    CHECK(dbias[i] == doctest::Approx(expected[2].to_vector<double>()[i]));
  }
}

// What your answers must do: the right numbers for every length, and nothing written beyond a row.

#include "exercise.h"

#include <norma/norma.h>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

// Around the widths of vectors, so that something is left over, or everything, or nothing.
constexpr int64_t kLengths[] = {1, 3, 15, 16, 17, 31, 32, 33, 64, 1000};

std::vector<float> numbers(int64_t count) {
  norma::Generator generator(8);
  std::vector<float> x(static_cast<size_t>(count));
  for (float& element : x) {
    element = static_cast<float>(4 * generator.uniform() + 1);
  }
  return x;
}

}  // namespace

TEST_CASE("gap 1: squares about a mean") {
  for (const int64_t n : kLengths) {
    const std::vector<float> x = numbers(n);
    double right = 0;
    for (const float element : x) {
      right += (element - 2.5) * (element - 2.5);
    }
    const double yours = squares_about(2.5F, x.data(), n);
    INFO("\n  n = ", n, ": expected ", right, ", yours is ", yours,
         std::string(n % 32 == 0 ? "" : "\n  The elements behind the last whole vector must be added too."));
    REQUIRE(std::abs(yours - right) <= 1e-5 * (1 + right));
  }
}

TEST_CASE("gap 2: a row is written") {
  constexpr float kUntouched = -77;
  for (const int64_t n : kLengths) {
    const std::vector<float> x = numbers(n);
    std::vector<float> y(x.size() + 20, kUntouched);
    write_row(x.data(), 2.5F, 0.75F, n, y.data());
    for (size_t i = 0; i < y.size(); ++i) {
      const float right = i < x.size() ? (x[i] - 2.5F) * 0.75F : kUntouched;
      INFO("\n  n = ", n, ", element ", i, std::string(i < x.size() ? "" : ", which lies behind the row"),
           ": expected ", right, ", yours is ", y[i],
           std::string(y[i] == kUntouched ? "\n  Nothing has been written there." : ""),
           std::string(i < x.size() ? "" : "\n  A whole vector was written where fewer elements are left."));
      REQUIRE(y[i] == doctest::Approx(right).epsilon(1e-6));
    }
  }
}

TEST_CASE("gap 3: rows are those of Norma's layer norm") {
  using namespace norma;  // NOLINT
  for (const int64_t n : kLengths) {
    constexpr int64_t kRows = 7;
    const std::vector<float> x = numbers(kRows * n);
    std::vector<float> y(x.size(), NAN);
    norm_rows(x.data(), kRows, n, y.data());
    const std::vector<float> right = layer_norm(from_vector(x, {kRows, n}), {n}).to_vector<float>();
    for (size_t i = 0; i < y.size(); ++i) {
      INFO("\n  ", kRows, " rows, n = ", n, ", row ", i / static_cast<size_t>(n), ": expected ", right[i],
           ", yours is ", y[i],
           std::string(std::isnan(y[i]) ? "\n  Nothing has been written there, or the variance is below 0." : ""));
      REQUIRE(std::abs(y[i] - right[i]) <= 1e-4F);
    }
  }
}

TEST_CASE("gap 3: any number of threads gives the same bits") {
  const std::vector<float> x = numbers(9 * 100);
  std::vector<float> one(x.size(), 0);
  std::vector<float> several(x.size(), 0);
  const int before = norma::num_threads();
  norma::set_num_threads(1);
  norm_rows(x.data(), 9, 100, one.data());
  norma::set_num_threads(3);
  norm_rows(x.data(), 9, 100, several.data());
  norma::set_num_threads(before);
  CHECK_MESSAGE(one == several, "\n  one thread and three gave other numbers: does each row depend on itself alone?");
}

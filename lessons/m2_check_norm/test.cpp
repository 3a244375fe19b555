// What your norm must do. First each part alone, then all of it before check-norm.

#include "exercise.h"

#include <norma/lab/lab.h>
#include <norma/norma.h>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

using namespace norma;  // NOLINT: a test reads better without prefixes

namespace {

const TensorOptions kFloat64{.dtype = DType::float64};

/// Random numbers with this mean.
template <class T>
std::vector<T> numbers(size_t count, double mean, uint64_t seed = 1) {
  Generator generator(seed);
  std::vector<T> x(count);
  for (T& element : x) {
    element = static_cast<T>(mean + 4 * generator.uniform() - 2);
  }
  return x;
}

}  // namespace

TEST_CASE("gap 1: the row of lesson 6") {
  const std::vector<double> x = {1, 3, 4, 5, 7};
  const MeanAndRstd<double> yours = statistics_of(std::span<const double>(x));
  CHECK_MESSAGE(std::abs(yours.mean - 4) < 1e-12, "\n  mean: expected 4, yours is ", yours.mean);
  CHECK_MESSAGE(std::abs(yours.rstd - 1 / std::sqrt(4 + kEps)) < 1e-12,
                "\n  rstd: expected 1 / sqrt(4 + kEps) = ", 1 / std::sqrt(4 + kEps), ", yours is ", yours.rstd);
}

TEST_CASE("gap 1: images of floats around 10000") {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    const std::vector<float> x = numbers<float>(3 * 32 * 32, 1e4, seed);
    const NormReference right({.spec = {.reduce = {0}}, .x = from_vector(x, {static_cast<int64_t>(x.size())})});
    const MeanAndRstd<float> yours = statistics_of(std::span<const float>(x));
    const auto rstd = static_cast<double>(right.rstd(0));
    REQUIRE_MESSAGE(std::abs(yours.rstd - rstd) <= 1e-3 * rstd, "\n  rstd: expected ", rstd, ", yours is ", yours.rstd,
                    "\n  NaN, or far off: lesson 7 says what E[x²] - E[x]² does to floats that are far from 0");
    const double off = std::abs(static_cast<double>(yours.mean) - static_cast<double>(right.mean(0)));
    REQUIRE_MESSAGE(
        off <= 1.5e-3, "\n  your mean is ", off, " off, and so is every output: a float sum of ", x.size(),
        " numbers around 10000 rounds each time.\n  Add to the mean what it lacks: the sum of all distances "
        "from it, divided by their count.");
  }
}

TEST_CASE("gap 2: the gradients of an image") {
  constexpr size_t kSize = 24;
  const std::vector<double> x = numbers<double>(kSize, 3, 1);
  const std::vector<double> dy = numbers<double>(kSize, 0, 2);
  const std::vector<double> weight = numbers<double>(kSize, 1, 3);
  std::vector<double> dx(kSize, 0);
  std::vector<double> dweight(kSize, 77);  // what stood there before must not count
  std::vector<double> dbias(kSize, 77);
  const NormSpec spec{.reduce = {0}, .affine = {0}, .eps = kEps};
  const auto tensor = [](const std::vector<double>& v) { return from_vector(v, {kSize}, kFloat64); };
  const Tensors right = normalize_backward(tensor(dy), tensor(x), spec, tensor(weight), zeros({kSize}, kFloat64));
  const NormReference reference({.spec = spec, .x = tensor(x), .weight = tensor(weight)});
  backward_of(Backward<double>{
      .statistics = {.mean = static_cast<double>(reference.mean(0)), .rstd = static_cast<double>(reference.rstd(0))},
      .x = x,
      .dy = dy,
      .weight = weight,
      .dx = dx,
      .dweight = dweight,
      .dbias = dbias});
  for (size_t i = 0; i < kSize; ++i) {
    INFO("\n  element ", i, "\n  dx: expected ", right[0].to_vector<double>()[i], ", yours is ", dx[i],
         "\n  dweight: expected ", right[1].to_vector<double>()[i], ", yours is ", dweight[i], "\n  dbias: expected ",
         dy[i], ", yours is ", dbias[i]);
    REQUIRE(std::abs(dx[i] - right[0].to_vector<double>()[i]) < 1e-9);
    REQUIRE(std::abs(dweight[i] - right[1].to_vector<double>()[i]) < 1e-9);
    REQUIRE(std::abs(dbias[i] - dy[i]) < 1e-9);
  }
}

TEST_CASE("gap 3: the norm made of ops") {
  Generator generator(3);
  const Tensor x = randn({2, 3, 4, 5}, kFloat64, generator) + 2.0;
  const Tensor weight = randn({3}, kFloat64, generator);
  const Tensor bias = randn({3}, kFloat64, generator);
  const std::vector<double> yours = norm_of_ops(x, weight, bias).to_vector<double>();
  const std::vector<double> right = group_norm(x, 1, weight, bias).to_vector<double>();
  REQUIRE(yours.size() == right.size());
  for (size_t i = 0; i < right.size(); ++i) {
    const double off = std::abs(yours[i] - right[i]);
    INFO("\n  element ", i, " of a tensor (2, 3, 4, 5): expected ", right[i], ", yours is ", yours[i],
         std::string(off < 1e-4 ? "\n  Nearly right: is kEps added to the variance?" : ""));
    REQUIRE(off < 1e-9);
  }
}

TEST_CASE("gap 3: check-norm finds nothing wrong (needs gaps 1 and 2)") {
  register_my_norm();
  const Tensor x = randn({2, 8, 5, 4}).set_requires_grad();
  sum(nn::make_norm("mine", 8)->forward(x)).backward();  // an error is said once, and not by each check
  const lab::NormCheckReport report = lab::check_norm("mine", {.quick = true});
  CHECK_MESSAGE(report.passed(), "\n  check-norm says:\n", lab::to_text(report));
}

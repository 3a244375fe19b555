#include "core/cuda/kernel.h"

#include <doctest/doctest.h>

#include <cmath>
#include <numbers>

// The formulas of the map norms on plain numbers, as kernels for CUDA use them. Those on vectors are tested through the
// ops.

namespace norma::kernels::NORMA_BACKEND {

inline double select(bool condition, double yes, double no) {
  return condition ? yes : no;
}
inline double zero_where(bool condition, double no) {
  return condition ? 0 : no;
}
inline double multiply_add(double a, double b, double c) {
  return a * b + c;
}
inline double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}
using std::erf;
using std::exp;
using std::tanh;

}  // namespace norma::kernels::NORMA_BACKEND

#include "ops/map_norm/functions.h"

namespace norma::kernels::NORMA_BACKEND {

namespace {

constexpr double kNumbers[5] = {0.7, 1.3, 0.9, -0.6, 0.2};
constexpr MapFunction kFunctions[] = {MapFunction::threshold, MapFunction::gate, MapFunction::evo,
                                      MapFunction::affine,    MapFunction::tanh, MapFunction::erf};
/// Number 4 of erf: 2 / sqrt(pi) * alpha * weight.
constexpr double kErfSlope = 2 * std::numbers::inv_sqrtpi * kNumbers[0] * kNumbers[2];

}  // namespace

TEST_CASE("map functions: the slope on plain numbers is the derivative of the value") {
  for (const MapFunction function : kFunctions) {
    const auto n = [function](int k) { return k == 4 && function == MapFunction::erf ? kErfSlope : kNumbers[k]; };
    for (const bool relu : {false, true}) {
      with_map_function({.function = function, .shape = {}, .relu = relu}, [&]<class F>(F) {
        for (const double x : {-1.9, -0.8, -0.31, 0.12, 0.77, 2.3}) {
          CAPTURE(static_cast<int>(function));
          CAPTURE(relu);
          CAPTURE(x);
          constexpr double kStep = 1e-6;
          const double slope = (F::value(x + kStep, n) - F::value(x - kStep, n)) / (2 * kStep);
          CHECK(std::abs(F::derivatives(3.0, x, n).slope - 3 * slope) <= 1e-8);
        }
      });
    }
  }
}

TEST_CASE("map functions: the larger of two is NaN where one is, and equal ones get half of the gradient each") {
  const double nan = std::nan("");
  CHECK(std::isnan(larger(nan, 1.0)));
  CHECK(std::isnan(larger(1.0, nan)));
  CHECK(larger(-HUGE_VAL, 1.0) == 1);
  CHECK(larger(2.0, 1.0) == 2);
  CHECK(share_of_first(2.0, 1.0, 6.0) == 6);
  CHECK(share_of_first(1.0, 1.0, 6.0) == 3);
  CHECK(share_of_first(1.0, 2.0, 6.0) == 0);
}

}  // namespace norma::kernels::NORMA_BACKEND

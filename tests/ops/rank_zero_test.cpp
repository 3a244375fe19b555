#include "core/factory.h"
#include "core/tape.h"
#include "error_text.h"
#include "ops/loss/loss.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"

#include <cstdint>
#include <functional>
#include <vector>

using namespace norma;
using norma::test::error_of;

TEST_CASE("reductions: a number has axis 0 or -1, as in PyTorch") {
  for (const int64_t axis : {0, -1}) {
    CAPTURE(axis);
    for (const bool keepdim : {false, true}) {
      CAPTURE(keepdim);
      const std::vector<std::function<Tensor(const Tensor&)>> all{
          [&](const Tensor& x) { return sum(x, {axis}, {.keepdim = keepdim}); },
          [&](const Tensor& x) { return mean(x, {axis}, {.keepdim = keepdim}); },
          [&](const Tensor& x) { return max(x, {axis}, {.keepdim = keepdim}); },
          [&](const Tensor& x) { return prod(x, {axis}, {.keepdim = keepdim}); },
          [&](const Tensor& x) { return max_along(x, axis, {.keepdim = keepdim}).values; }};
      for (size_t i = 0; i < all.size(); ++i) {
        CAPTURE(i);
        Tensor x = scalar(2.5, DType::float64).set_requires_grad();
        const Tensor y = all[i](x);
        CHECK(y.sizes() == Sizes{});
        CHECK(y.item<double>() == 2.5);
        backward(mul(y, 3));
        CHECK(x.grad().sizes() == Sizes{});
        CHECK(x.grad().item<double>() == 3);
      }
      Tensor x = scalar(2.5, DType::float64).set_requires_grad();
      const Tensor variance = var(x, {axis}, {.correction = 0, .keepdim = keepdim});
      CHECK(variance.sizes() == Sizes{});
      CHECK(variance.item<double>() == 0);
      backward(variance);
      CHECK(x.grad().item<double>() == 0);
      for (const Tensor& index :
           {argmax(x, axis, {.keepdim = keepdim}), max_along(x, axis, {.keepdim = keepdim}).index}) {
        CHECK(index.sizes() == Sizes{});
        CHECK(index.item<int64_t>() == 0);
      }
    }
    for (const bool logarithm : {false, true}) {
      Tensor x = scalar(2.5, DType::float64).set_requires_grad();
      const Tensor y = logarithm ? log_softmax(x, axis) : softmax(x, axis);
      CHECK(y.sizes() == Sizes{});
      CHECK(y.item<double>() == (logarithm ? 0 : 1));
      backward(y);
      CHECK(x.grad().sizes() == Sizes{});
      CHECK(x.grad().item<double>() == 0);
    }
  }
  const Tensor x = scalar(1);
  CHECK(error_of([&] { sum(x, {1}); }) == "sum: axis: expected a value in [-1, 1), got 1");
  CHECK(error_of([&] { sum(x, {0, -1}); }) == "sum: axes: expected each axis once, got [0, -1]");
  CHECK(error_of([&] { argmax(x, -2); }) == "argmax: axis: expected a value in [-1, 1), got -2");
  CHECK(error_of([&] { max_along(x, 1); }) == "max_along: axis: expected a value in [-1, 1), got 1");
  CHECK(error_of([&] { softmax(x, 1); }) == "softmax: axis: expected a value in [-1, 1), got 1");
}

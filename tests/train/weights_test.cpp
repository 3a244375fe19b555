#include "train/weights.h"

#include "core/factory.h"
#include "error_text.h"

#include <cmath>

using namespace norma;
using norma::test::error_of;

TEST_CASE("weights: tensors that are not finite are named") {
  Tensor x = zeros({2, 3});
  const auto error = [&](const Tensor& y) {
    return error_of([&] { train::check_finite("op", "file", {{"a", zeros({2})}, {"x", y}}); });
  };
  CHECK(error(x) == "no error");
  CHECK(error(zeros({3}, {.dtype = DType::int64})) == "no error");
  CHECK(error(zeros({0})) == "no error");
  const std::string text = "op: file: tensor 'x': expected finite numbers, got ";
  x.data<float>()[1] = NAN;
  CHECK(error(x) == text + "1 of 6 that are NaN or infinite");
  x.data<float>()[5] = -INFINITY;
  CHECK(error(x) == text + "2 of 6 that are NaN or infinite");
  for (const DType dtype : {DType::float64, DType::bfloat16, DType::float16}) {
    CHECK(error(full({4}, INFINITY, {.dtype = dtype})) == text + "4 of 4 that are NaN or infinite");
    CHECK(error(full({4}, 1, {.dtype = dtype})) == "no error");
  }
}

#include "virtual_gpu/numbers.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

using namespace virtual_gpu;

TEST_CASE("virtual numbers: each type rounds once, ties to even") {
  // Halfway between two bfloat16 numbers, and a bit more: through float32 it would be rounded twice.
  CHECK(rounded(NumberType::kBfloat16, 1 + 0x1p-8) == 1);
  CHECK(rounded(NumberType::kBfloat16, 1 + 0x1p-8 + 0x1p-40) == 1 + 0x1p-7);
  CHECK(rounded(NumberType::kBfloat16, 1 + 3 * 0x1p-8) == 1 + 0x1p-6);
  CHECK(rounded(NumberType::kBfloat16, -(1 + 3 * 0x1p-8 - 0x1p-40)) == -(1 + 0x1p-7));
  CHECK(rounded(NumberType::kFloat16, 1 + 0x1p-11) == 1);
  CHECK(rounded(NumberType::kFloat16, 1 + 0x1p-11 + 0x1p-40) == 1 + 0x1p-10);
  CHECK(rounded(NumberType::kFloat16, 0x1p-24) == 0x1p-24);
  CHECK(rounded(NumberType::kFloat32, 1 + 0x1p-24) == 1);
  CHECK(rounded(NumberType::kFloat64, 1 + 0x1p-52) == 1 + 0x1p-52);
}

TEST_CASE("virtual numbers: limits") {
  CHECK(rounded(NumberType::kFloat16, 65519.9) == 65504);
  CHECK(std::isinf(rounded(NumberType::kFloat16, 65520)));
  CHECK(std::isinf(rounded(NumberType::kBfloat16, 3.4e38)));
  CHECK(rounded(NumberType::kBfloat16, 3.38e38) < 3.39e38);
  CHECK(std::isinf(rounded(NumberType::kBfloat16, 1e300)));
  for (const NumberType type :
       {NumberType::kFloat64, NumberType::kFloat32, NumberType::kFloat16, NumberType::kBfloat16}) {
    CHECK(std::isnan(rounded(type, std::numeric_limits<double>::quiet_NaN())));
    CHECK(rounded(type, -std::numeric_limits<double>::infinity()) == -std::numeric_limits<double>::infinity());
    CHECK(rounded(type, 1 + epsilon_of(type)) > 1);
    CHECK(rounded(type, 1 + epsilon_of(type) / 4) == 1);
    CHECK(std::signbit(rounded(type, -0.0)));
  }
}

TEST_CASE("virtual numbers: TF32 keeps ten bits, ties away from zero") {
  std::vector<double> values = {1 + 0x1p-11, -(1 + 0x1p-11), 1 + 0x1p-11 - 0x1p-23, 1 + 0x1p-10, 3.0e38};
  round_inputs(InputRounding::kTf32, values);
  CHECK(values[0] == 1 + 0x1p-10);
  CHECK(values[1] == -(1 + 0x1p-10));
  CHECK(values[2] == 1);
  CHECK(values[3] == 1 + 0x1p-10);
  CHECK(std::abs(values[4] - 3.0e38) < 2e35);
}

TEST_CASE("virtual numbers: errors are bounded, and decided by the seed") {
  const std::vector<double> original = {1, -4, 0, 2};
  std::vector<double> first = original;
  std::vector<double> second = original;
  std::vector<double> other = original;
  perturb(first, 8, 0x1p-23, 1);
  perturb(second, 8, 0x1p-23, 1);
  perturb(other, 8, 0x1p-23, 2);
  CHECK(first == second);
  CHECK(first != other);
  for (size_t i = 0; i < original.size(); ++i) {
    CHECK(first[i] != original[i]);
    CHECK(std::abs(first[i] - original[i]) <= 8 * 0x1p-23 * 4);
  }
}

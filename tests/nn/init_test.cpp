#include "nn/init.h"

#include "core/random.h"
#include "error_text.h"
#include "nn/conv.h"
#include "nn/layers.h"

using namespace norma;
using namespace norma::nn;
using norma::test::differ;
using norma::test::error_of;
using norma::test::max_difference;

namespace {

struct Moments {
  double mean = 0;
  double std = 0;
  double largest = 0;
};

Moments moments(const Tensor& x) {
  Moments result;
  const std::vector<double> values = x.to_vector<double>();
  double squares = 0;
  for (const double value : values) {
    result.mean += value / static_cast<double>(values.size());
    squares += value * value / static_cast<double>(values.size());
    result.largest = std::max(result.largest, std::abs(value));
  }
  result.std = std::sqrt(squares - result.mean * result.mean);
  return result;
}

}  // namespace

// 64 · 32 · 9 = 18432 values: the standard error of the deviation is 0.5 %, that of the mean 0.7 % of it.

TEST_CASE("init: kaiming_normal_ has deviation gain / sqrt(fan)") {
  Generator generator(1);
  const Tensor weight = zeros({64, 32, 3, 3});
  kaiming_normal_(weight, Fan::out, kReluGain, generator);
  const double out = std::sqrt(2.0 / (64 * 9));
  CHECK(std::abs(moments(weight).std - out) <= 0.025 * out);
  CHECK(std::abs(moments(weight).mean) <= 0.035 * out);
  kaiming_normal_(weight, Fan::in, 1, generator);
  const double in = std::sqrt(1.0 / (32 * 9));
  CHECK(std::abs(moments(weight).std - in) <= 0.025 * in);
}

TEST_CASE("init: kaiming_uniform_ fills its bounds evenly") {
  Generator generator(2);
  const Tensor weight = zeros({64, 32, 3, 3});
  kaiming_uniform_(weight, Fan::in, 1, generator);
  const double bound = std::sqrt(3.0 / (32 * 9));
  CHECK(moments(weight).largest <= bound);
  CHECK(moments(weight).largest >= 0.99 * bound);
  CHECK(std::abs(moments(weight).std - bound / std::sqrt(3.0)) <= 0.025 * bound);
}

TEST_CASE("init: trunc_normal_ keeps within 2, whatever the deviation") {
  Generator generator(3);
  const Tensor weight = zeros({64, 288});
  trunc_normal_(weight, 0.02, generator);
  CHECK(std::abs(moments(weight).std - 0.02) <= 0.025 * 0.02);
  trunc_normal_(weight, 2, generator);
  CHECK(moments(weight).largest <= 2);
  CHECK(moments(weight).largest >= 1.98);
  // A normal variable cut off at its own deviation has deviation sqrt(1 - 2 φ(1) / (2 Φ(1) - 1)) = 0.5396.
  CHECK(std::abs(moments(weight).std - 2 * 0.5396) <= 0.025 * 2 * 0.5396);
}

TEST_CASE("init: default_init_ is PyTorch's bound for weight and bias") {
  Generator generator(4);
  const Tensor weight = zeros({200, 100});
  const Tensor bias = zeros({200});
  default_init_(weight, bias, generator);
  CHECK(moments(weight).largest <= 0.1);
  CHECK(moments(weight).largest >= 0.0999);
  CHECK(moments(bias).largest <= 0.1);
  CHECK(moments(bias).largest >= 0.09);
}

TEST_CASE("init: values depend on the seed, not on the memory format") {
  const auto draw = [](uint64_t seed, MemoryFormat format) {
    Generator generator(seed);
    Tensor weight = zeros({5, 3, 2, 4}, {.format = format}).set_requires_grad();
    kaiming_normal_(weight, Fan::out, kReluGain, generator);
    return weight.detach();
  };
  const Tensor a = draw(5, MemoryFormat::contiguous);
  CHECK(max_difference(a, draw(5, MemoryFormat::channels_last)) == 0);
  CHECK(differ(a, draw(6, MemoryFormat::contiguous), 0.01));
}

TEST_CASE("init: layers start from the default generator unless told not to") {
  manual_seed(9);
  const Conv2d a(3, 4, 3);
  manual_seed(9);
  const Conv2d b(3, 4, 3);
  CHECK(max_difference(a.weight(), b.weight()) == 0);
  CHECK(max_difference(a.bias(), b.bias()) == 0);
  CHECK(moments(a.weight()).std > 0.05);
  CHECK(moments(Conv2d(3, 4, 3, {.initialize = false}).weight()).largest == 0);
  CHECK(moments(Linear(3, 4, {.initialize = false}).weight()).largest == 0);
}

TEST_CASE("init: error texts") {
  CHECK(error_of([] { kaiming_normal_(zeros({3})); }) ==
        "kaiming_normal_: weight: expected rank 2 or more, got rank 1 (sizes [3])");
}

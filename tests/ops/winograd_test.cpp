#include "core/copy.h"
#include "core/factory.h"
#include "core/parallel.h"
#include "core/tape.h"
#include "ops/conv/conv.h"
#include "ops/conv/kernels.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/view.h"
#include "support.h"

#include <cmath>
#include <limits>
#include <string>

namespace norma::test {
namespace {

using kernels::Conv2dCase;
using kernels::Conv2dPass;

Conv2dCase case_of(int64_t n, int64_t channels, int64_t size) {
  return {.channels_last = true,
          .weight_channels_last = true,
          .n = n,
          .c = channels,
          .h = size,
          .w = size,
          .o = channels,
          .kh = 3,
          .kw = 3,
          .oh = size,
          .ow = size,
          .padding_h = 1,
          .padding_w = 1};
}

std::string chosen(const Conv2dCase& conv) {
  return std::string(kernels::conv_kernels.at("conv2d", kCpu)->choose(conv, Conv2dPass::forward).name);
}

/// y, dx and dweight of a convolution with padding 1.
Tensors results(const std::string& implementation, const Tensor& x, const Tensor& weight, const Tensor& dy) {
  const Conv2dImplementationGuard forced(implementation, kCpu);
  const Tensor x_in = copy_of(x).set_requires_grad();
  const Tensor weight_in = copy_of(weight).set_requires_grad();
  const Tensor y = conv2d(x_in, weight_in, {}, {.padding = 1});
  y.backward(dy);
  return {y.detach(), x_in.grad(), weight_in.grad()};
}

/// The root of the mean square of a - b over that of b, which is float64.
double relative_error(const Tensor& a, const Tensor& b) {
  const Tensor error = sub(copy_of(a, MemoryFormat::preserve, DType::float64), b);
  const std::vector<double> sums = sums_of_squares({error, b}, kCpu).to_vector<double>();
  return std::sqrt(sums[0] / sums[1]);
}

}  // namespace

TEST_CASE("winograd: rounds about as little as the sums of the definition") {
  const DefaultDeviceGuard cpu(kCpu);
  struct Shape {
    int64_t n, c, h, w;
  };
  for (const Shape s : {Shape{2, 96, 13, 11}, Shape{15, 16, 24, 23}}) {  // the second has several blocks of tiles
    CAPTURE(s.n);
    const Tensor x = random_tensor({s.n, s.c, s.h, s.w}, 1, DType::float32);
    const Tensor weight = random_tensor({24, s.c, 3, 3}, 2, DType::float32);
    const Tensor dy = random_tensor({s.n, 24, s.h, s.w}, 3, DType::float32);
    const auto wide = [](const Tensor& t) { return copy_of(t, MemoryFormat::preserve, DType::float64); };
    const Tensors expected = results("reference", wide(x), wide(weight), wide(dy));
    const Tensors direct = results("eigen", x, weight, dy);
    const Tensors two = results("winograd_2x2", x, weight, dy);
    const Tensors four = results("winograd_4x4", x, weight, dy);
    for (size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      const double least = relative_error(direct[i], expected[i]);
      CHECK(least > 0);
      CHECK(relative_error(two[i], expected[i]) < 2 * least);
      CHECK(relative_error(four[i], expected[i]) < 8 * least);
    }
  }
}

TEST_CASE("winograd: is chosen where it multiplies less, and not in exact mode") {
  CHECK(chosen(case_of(8, 64, 56)) == "winograd_4x4");
  CHECK(chosen(case_of(8, 512, 7)) == "winograd_2x2");  // whose tiles of 4x4 are half empty
  const std::string direct = chosen(case_of(1, 512, 7));
  CHECK(!direct.starts_with("winograd"));  // one image: the weights alone take longer
  CHECK(chosen(case_of(32, 16, 32)) == direct);
  Conv2dCase strided = case_of(8, 64, 56);
  strided.stride_h = strided.stride_w = 2;
  strided.oh = strided.ow = 28;
  CHECK(chosen(strided) == direct);
  CHECK(conv2d_mode() == Conv2dMode::fast);
  {
    const Conv2dImplementationGuard exact("exact", kCpu);
    CHECK(conv2d_mode() == Conv2dMode::exact);
    CHECK(chosen(case_of(8, 64, 56)) == direct);
  }
  const Conv2dImplementationGuard fast("fast", kCpu);
  CHECK(conv2d_mode() == Conv2dMode::fast);
  CHECK(chosen(case_of(8, 64, 56)) == "winograd_4x4");
}

TEST_CASE("winograd: the same bits for any number of threads") {
  const DefaultDeviceGuard cpu(kCpu);
  const int before = num_threads();
  const Tensor x = random_tensor({3, 32, 29, 30}, 1, DType::float32);
  const Tensor weight = random_tensor({48, 32, 3, 3}, 2, DType::float32);
  const Tensor dy = random_tensor({3, 48, 29, 30}, 3, DType::float32);
  for (const std::string name : {"winograd_2x2", "winograd_4x4"}) {
    set_num_threads(1);
    const Tensors one = results(name, x, weight, dy);
    set_num_threads(3);
    const Tensors three = results(name, x, weight, dy);
    for (size_t i = 0; i < one.size(); ++i) {
      CHECK(max_difference(one[i], three[i]) == 0);
    }
  }
  set_num_threads(before);
}

TEST_CASE("winograd: bias, residual and relu in the last transform") {
  const DefaultDeviceGuard cpu(kCpu);
  const NoGradGuard no_grad;
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    const Tensor x = copy_of(random_tensor({2, 20, 9, 7}, 1, DType::float32), format);
    const Tensor weight = random_tensor({33, 20, 3, 3}, 2, DType::float32);
    const Tensor bias = random_tensor({33}, 3, DType::float32);
    const Tensor residual = copy_of(random_tensor({2, 33, 9, 7}, 4, DType::float32), format);
    for (const Activation activation : {Activation::identity, Activation::relu, Activation::gelu}) {
      for (const bool with_residual : {false, true}) {
        const ActOptions then{.activation = activation, .residual = with_residual ? residual : Tensor()};
        const auto result = [&](const std::string& name) {
          const Conv2dImplementationGuard forced(name, kCpu);
          return conv2d_act(x, weight, bias, {.padding = 1}, then);
        };
        const Tensor expected = result("eigen");
        CHECK(max_difference(result("winograd_2x2"), expected) <= 1e-4);
        CHECK(max_difference(result("winograd_4x4"), expected) <= 1e-4);
      }
    }
  }
}

TEST_CASE("winograd: a NaN reaches every output that depends on it") {
  const DefaultDeviceGuard cpu(kCpu);
  const NoGradGuard no_grad;
  const Tensor x = random_tensor({1, 16, 12, 12}, 1, DType::float32);
  fill_(narrow(narrow(narrow(x, 1, 5, 1), 2, 6, 1), 3, 3, 1), std::numeric_limits<double>::quiet_NaN());
  const Tensor weight = random_tensor({16, 16, 3, 3}, 2, DType::float32);
  for (const std::string name : {"winograd_2x2", "winograd_4x4"}) {
    const Conv2dImplementationGuard forced(name, kCpu);
    const Tensor y = conv2d_act(x, weight, {}, {.padding = 1}, {.activation = Activation::relu});
    for (int64_t h = 5; h <= 7; ++h) {
      for (int64_t w = 2; w <= 4; ++w) {
        CHECK(std::isnan(narrow(narrow(narrow(y, 1, 0, 1), 2, h, 1), 3, w, 1).to_vector<double>()[0]));
      }
    }
    CHECK(std::isfinite(y.to_vector<double>()[0]));  // its tile is another
  }
}

}  // namespace norma::test

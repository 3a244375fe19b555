// Every op on bfloat16 and float16 against itself on float32 of the same rounded numbers.

#include "ops/conv/conv.h"
#include "ops/conv/kernels.h"
#include "ops/half/bfloat16.h"
#include "ops/loss/loss.h"
#include "ops/matmul/matmul.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pool/pool.h"
#include "ops/random/dropout.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/join.h"
#include "ops/shape/pad.h"
#include "ops/shape/view.h"
#include "tests/error_text.h"
#include "tests/support.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

namespace norma::test {

namespace {

constexpr DType kHalves[] = {DType::bfloat16, DType::float16};

using Op = std::function<Tensor(const Tensors&)>;

/// Half a step of the dtype at 1: the most that rounding one number moves it, relative to the number.
double half_step(DType dtype) {
  return dtype == DType::bfloat16 ? 0x1p-8 : 0x1p-11;
}

/// How far results may be from float32's.
struct Tolerance {
  double rounds = 1;  ///< how often a number is rounded on the way
  double slack = 0;   ///< half steps at the largest number of the tensor, where rounded numbers are added up
};

/// Largest distance between `half` and `wide`, in units of what is allowed; infinite for NaN.
double excess(const Tensor& half, const Tensor& wide, const Tolerance& tolerance) {
  const std::vector<double> a = half.to_vector<double>();
  const std::vector<double> b = wide.to_vector<double>();
  double largest = 0;
  for (const double value : b) {
    largest = std::max(largest, std::abs(value));
  }
  // Sums in float32 and subnormal numbers of float16 differ by a little more.
  constexpr double kFloat32 = 2e-6;
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double allowed = half_step(half.dtype()) * (tolerance.rounds * std::abs(b[i]) + tolerance.slack * largest) +
                           kFloat32 * largest + 0x1p-25;
    const double distance = std::abs(a[i] - b[i]) / allowed;
    worst = distance <= worst ? worst : std::isnan(distance) ? INFINITY : distance;
  }
  return worst;
}

/// An input of an op, and whether it takes part in the check of gradients.
Tensors inputs_in(const Tensors& inputs, DType half, DType dtype, Layout layout) {
  Tensors result;
  for (const Tensor& x : inputs) {
    if (!is_floating(x.dtype())) {
      result.push_back(x);
      continue;
    }
    const Tensor rounded = copy_of(copy_of(x, MemoryFormat::contiguous, half), MemoryFormat::contiguous, dtype);
    result.push_back(in_layout(rounded, layout).set_requires_grad());
  }
  return result;
}

void check_half(const std::string& name, const Op& f, const Tensors& inputs, const Tolerance& forward = {},
                const Tolerance& backward = {}) {
  for (const DType half : kHalves) {
    for (const Layout layout : kLayouts) {
      INFO(name << " " << to_string(half) << " " << to_string(layout));
      const Tensors xs = inputs_in(inputs, half, half, layout);
      const Tensors wides = inputs_in(inputs, half, DType::float32, layout);
      const Tensor y = f(xs);
      const Tensor wide = f(wides);
      CHECK(y.dtype() == half);
      CHECK(y.sizes() == wide.sizes());
      CHECK(y.strides() == wide.strides());
      CHECK(excess(y, wide, forward) <= 1);
      const Tensor dy = copy_of(random_tensor(y.sizes(), 77), MemoryFormat::contiguous, half);
      y.backward(dy);
      wide.backward(copy_of(dy, MemoryFormat::contiguous, DType::float32));
      for (size_t i = 0; i < xs.size(); ++i) {
        if (!is_floating(inputs[i].dtype())) {
          continue;
        }
        INFO("gradient of input " << i);
        REQUIRE(xs[i].grad().defined());
        CHECK(xs[i].grad().dtype() == half);
        CHECK(excess(xs[i].grad(), wides[i].grad(), backward) <= 1);
      }
    }
  }
}

Tensor positive(const Sizes& sizes, uint64_t seed) {
  return random_tensor(sizes, seed) * random_tensor(sizes, seed) + 0.3;
}

}  // namespace

TEST_CASE("half: unary functions") {
  const Tensor x = random_tensor({2, 3, 5, 7}, 1);
  const Tensor p = positive({2, 3, 5, 7}, 2);
  const auto check_unary = [](const std::string& name, Tensor (*f)(const Tensor&), const Tensor& at,
                              const Tolerance& backward = {}) {
    check_half(
        name, [f](const Tensors& xs) { return f(xs[0]); }, {at}, {}, backward);
  };
  check_unary("neg", neg, x);
  // Functions whose derivative is taken from the rounded result, or from functions of it: it inherits their rounding.
  check_unary("exp", exp, x, {.rounds = 2});
  check_unary("log", log, p);
  check_unary("sqrt", sqrt, p, {.rounds = 2});
  check_unary("rsqrt", rsqrt, p, {.rounds = 4});
  check_unary("abs", abs, x);
  check_unary("tanh", tanh, x, {.rounds = 1, .slack = 2});
  check_unary("sigmoid", sigmoid, x, {.rounds = 2, .slack = 1});
  check_unary("erf", erf, x);
  check_unary("relu", relu, x);
  check_unary("silu", silu, x);
  check_half("gelu", [](const Tensors& xs) { return gelu(xs[0]); }, {x});
  check_half("gelu tanh", [](const Tensors& xs) { return gelu(xs[0], GeluApproximation::tanh); }, {x});
  for (const double exponent : {2.0, 3.0, -1.0, 0.5, -0.5, 1.7}) {
    check_half("pow", [exponent](const Tensors& xs) { return pow(xs[0], exponent); }, {p}, {}, {.rounds = 4});
  }
  check_half("clamp", [](const Tensors& xs) { return clamp(xs[0], -0.5, 1); }, {x});
}

TEST_CASE("half: a large tensor, whose values are looked up, has the bits of its parts, whose values are computed") {
  constexpr int64_t kRows = 70;
  constexpr int64_t kColumns = 1001;
  const std::pair<std::string_view, Tensor (*)(const Tensor&)> functions[] = {
      {"tanh", tanh},
      {"erf", erf},
      {"silu", silu},
      {"gelu", [](const Tensor& x) { return gelu(x); }},
      {"gelu tanh", [](const Tensor& x) { return gelu(x, GeluApproximation::tanh); }}};
  const auto bits = [](const Tensor& x) {
    std::vector<uint32_t> result;
    for (const float value : x.to_vector<float>()) {
      result.push_back(std::isnan(value) ? 0x7fc00000U : std::bit_cast<uint32_t>(value));  // a NaN's sign means nothing
    }
    return result;
  };
  for (const DType half : kHalves) {
    Tensor numbers = mul(random_tensor({kRows, kColumns}, 5), 4);
    fill_(alias(numbers, {}, {}, 7), std::numeric_limits<double>::quiet_NaN());
    fill_(alias(numbers, {}, {}, 8), std::numeric_limits<double>::infinity());
    fill_(alias(numbers, {}, {}, 9), -std::numeric_limits<double>::infinity());
    const Tensor dense = copy_of(numbers, MemoryFormat::contiguous, half);
    const Tensor dy = copy_of(random_tensor({kRows, kColumns}, 6), MemoryFormat::contiguous, half);
    for (const bool strided : {false, true}) {
      for (const auto& [name, f] : functions) {
        INFO(name << " " << to_string(half) << (strided ? ", strided" : ""));
        Tensor x = strided ? transpose(copy_of(transpose(dense, 0, 1)), 0, 1) : dense.detach();
        x.set_requires_grad();
        const Tensor y = f(x);
        y.backward(dy);
        int64_t other = 0;
        for (int64_t row = 0; row < kRows; ++row) {
          Tensor part = select(dense, 0, row).detach();
          part.set_requires_grad();
          const Tensor y_part = f(part);
          y_part.backward(select(dy, 0, row));
          other += bits(y_part) == bits(select(y.detach(), 0, row)) ? 0 : 1;
          other += bits(part.grad()) == bits(select(x.grad(), 0, row)) ? 0 : 1;
        }
        CHECK(other == 0);
      }
    }
  }
}

TEST_CASE("half: functions of two tensors, broadcast and with numbers") {
  const Tensor a = random_tensor({2, 3, 5, 7}, 1);
  const Tensor b = positive({2, 3, 5, 7}, 2);
  const Tensor scale = random_tensor({3, 1, 1}, 3);
  const Tolerance summed{.rounds = 1, .slack = 3};
  check_half("add", [](const Tensors& xs) { return add(xs[0], xs[1]); }, {a, b});
  check_half("sub", [](const Tensors& xs) { return sub(xs[0], xs[1]); }, {a, b});
  check_half("mul", [](const Tensors& xs) { return mul(xs[0], xs[1]); }, {a, b});
  check_half("div", [](const Tensors& xs) { return div(xs[0], xs[1]); }, {a, b}, {}, {.rounds = 3});
  check_half("maximum", [](const Tensors& xs) { return maximum(xs[0], xs[1]); }, {a, b});
  check_half(
      "layer scale", [](const Tensors& xs) { return mul(xs[0], xs[1]); }, {a, scale}, {}, summed);
  check_half(
      "bias", [](const Tensors& xs) { return add(xs[0], xs[1]); }, {a, scale}, {}, summed);
  check_half("add a number", [](const Tensors& xs) { return add(xs[0], 0.5); }, {a});
  check_half("mul by a number", [](const Tensors& xs) { return mul(xs[0], 0.75); }, {a});
  check_half("div by a number", [](const Tensors& xs) { return div(xs[0], 3); }, {a});
  check_half("where", [](const Tensors& xs) { return where(greater(xs[0], xs[1]), xs[0], xs[1]); }, {a, b});
}

TEST_CASE("half: in-place functions") {
  const Tensor a = random_tensor({2, 3, 5, 7}, 1);
  const Tensor b = positive({2, 3, 5, 7}, 2);
  const auto in_place = [](auto f) {
    return [f](const Tensors& xs) {
      Tensor y = clone(xs[0]);
      f(y, xs);
      return y;
    };
  };
  check_half("add_", in_place([](Tensor& y, const Tensors& xs) { add_(y, xs[1]); }), {a, b});
  check_half("mul_", in_place([](Tensor& y, const Tensors& xs) { mul_(y, xs[1]); }), {a, b});
  check_half("relu_", in_place([](Tensor& y, const Tensors&) { relu_(y); }), {a});
}

TEST_CASE("half: comparisons") {
  for (const DType half : kHalves) {
    const Tensor a = from_vector<double>({1, 2, NAN, -INFINITY}, {4});
    const Tensor b = from_vector<double>({1, 1.5, NAN, 0}, {4});
    const Tensor x = copy_of(a, MemoryFormat::contiguous, half);
    const Tensor y = copy_of(b, MemoryFormat::contiguous, half);
    CHECK(equal(x, y).to_vector<int64_t>() == std::vector<int64_t>{1, 0, 0, 0});
    CHECK(greater(x, y).to_vector<int64_t>() == std::vector<int64_t>{0, 1, 0, 0});
    CHECK(greater(x, 1).to_vector<int64_t>() == std::vector<int64_t>{0, 1, 0, 0});
  }
}

TEST_CASE("half: reductions") {
  const Tensor x = random_tensor({3, 5, 7, 33}, 1);
  for (const Axes& axes : {Axes{}, Axes{1}, Axes{0, 2, 3}, Axes{3}}) {
    check_half("sum", [axes](const Tensors& xs) { return sum(xs[0], axes); }, {x});
    check_half("mean", [axes](const Tensors& xs) { return mean(xs[0], axes, {.keepdim = true}); }, {x}, {},
               {.rounds = 2});
    check_half("var", [axes](const Tensors& xs) { return var(xs[0], axes); }, {x}, {}, {.rounds = 2});
  }
  // Maxima that are equal after rounding share the gradient in both dtypes.
  check_half("max", [](const Tensors& xs) { return max(xs[0], {3}); }, {x}, {}, {.rounds = 2});
  for (const DType half : kHalves) {
    const Tensor rounded = copy_of(x, MemoryFormat::contiguous, half);
    const Tensor wide = copy_of(rounded, MemoryFormat::contiguous, DType::float32);
    CHECK(argmax(rounded, 3).to_vector<int64_t>() == argmax(wide, 3).to_vector<int64_t>());
    CHECK(argmax(rounded).item<int64_t>() == argmax(wide).item<int64_t>());
    const Tensor with_nan = copy_of(from_vector<double>({1, NAN, 3}, {3}), MemoryFormat::contiguous, half);
    CHECK(argmax(with_nan).item<int64_t>() == 1);
    CHECK(std::isnan(max(with_nan).to_vector<double>()[0]));
  }
}

TEST_CASE("half: a long sum is carried wide") {
  // 10,000 ones: a sum in bfloat16 would stop at 256.
  const Tensor x = ones({100, 100}, {.dtype = DType::bfloat16});
  CHECK(sum(x).to_vector<double>()[0] == static_cast<float>(bfloat16(10000.0F)));
  CHECK(mean(x).to_vector<double>()[0] == 1);
  CHECK(var(add(x, 0)).to_vector<double>()[0] == 0);
}

TEST_CASE("half: pooling") {
  const Tensor x = random_tensor({2, 5, 9, 8}, 1);
  const Pool2dOptions window{.kernel = 3, .stride = 2, .padding = 1};
  check_half("max_pool2d", [&](const Tensors& xs) { return max_pool2d(xs[0], window); }, {x});
  check_half("avg_pool2d", [&](const Tensors& xs) { return avg_pool2d(xs[0], window); }, {x});
  check_half("adaptive", [](const Tensors& xs) { return adaptive_avg_pool2d(xs[0], {2, 3}); }, {x});
  check_half("global", [](const Tensors& xs) { return adaptive_avg_pool2d(xs[0], 1); }, {x});
}

TEST_CASE("half: shapes") {
  const Tensor x = random_tensor({3, 4, 5, 6}, 1);
  const Tensor index = from_vector<int64_t>({2, 0, 2}, {3});
  check_half("reshape", [](const Tensors& xs) { return reshape(xs[0], {12, 30}); }, {x});
  check_half("permute", [](const Tensors& xs) { return permute(xs[0], {0, 2, 3, 1}); }, {x});
  check_half("slice", [](const Tensors& xs) { return slice(xs[0], 2, 1, 5, 2); }, {x});
  check_half("expand", [](const Tensors& xs) { return expand(xs[0], {4, 3, 4, 5, 6}); }, {x});
  check_half("cat", [](const Tensors& xs) { return cat({xs[0], xs[1]}, 1); }, {x, x});
  check_half("pad", [](const Tensors& xs) { return pad(xs[0], {0, 0, 1, 2}, {0, 0, 0, 1}); }, {x});
  // Row 2 is taken twice; its gradient is a sum of two rounded numbers.
  check_half("index_select", [&](const Tensors& xs) { return index_select(xs[0], 0, xs[1]); }, {x, index});
  check_half("clone", [](const Tensors& xs) { return clone(xs[0], MemoryFormat::channels_last); }, {x});
}

TEST_CASE("half: dropping draws the same numbers as float32") {
  const Tensor x = random_tensor({4, 3, 5, 6}, 1);
  check_half("dropout",
             [](const Tensors& xs) {
               Generator generator(3);
               return dropout(xs[0], 0.5, true, generator);
             },
             {x});
  check_half("drop_path",
             [](const Tensors& xs) {
               Generator generator(3);
               return drop_path(xs[0], 0.5, true, generator);
             },
             {x});
}

TEST_CASE("half: softmax and losses are computed in float32") {
  const Tensor x = random_tensor({6, 33}, 1) * 3;
  const Tensor labels = from_vector<int64_t>({0, 32, 5, 5, 17, 1}, {6});
  // The gradient is taken from the float32 result, and rounded once.
  check_half("softmax", [](const Tensors& xs) { return softmax(xs[0], 1); }, {x});
  check_half("log_softmax", [](const Tensors& xs) { return log_softmax(xs[0], 0); }, {x});
  for (const Reduction reduction : {Reduction::mean, Reduction::none}) {
    const CrossEntropyOptions options{.label_smoothing = 0.1, .reduction = reduction};
    check_half("cross_entropy", [&](const Tensors& xs) { return cross_entropy(xs[0], xs[1], options); }, {x, labels});
    const Tensor target = softmax(random_tensor({6, 33}, 2), 1);
    check_half("probabilities", [&](const Tensors& xs) { return cross_entropy(xs[0], xs[1], options); }, {x, target});
  }
}

TEST_CASE("half: norms") {
  const Tensor x = random_tensor({3, 8, 5, 4}, 1);
  const Tensor weight = positive({8}, 2);
  const Tensor bias = random_tensor({8}, 3);
  check_half("layer_norm_2d", [](const Tensors& xs) { return layer_norm_2d(xs[0], xs[1], xs[2]); }, {x, weight, bias});
  check_half("group_norm", [](const Tensors& xs) { return group_norm(xs[0], 4, xs[1], xs[2]); }, {x, weight, bias});
  check_half("batch_norm", [](const Tensors& xs) { return batch_norm(xs[0], {}, {}, xs[1], xs[2]); },
             {x, weight, bias});
}

namespace {

/// One way that products of bfloat16 may go, for as long as it lives.
class Primitives {
 public:
  explicit Primitives(bool use) : before_(uses_bfloat16_primitives()) { set_bfloat16_primitives(use); }
  ~Primitives() { set_bfloat16_primitives(before_); }
  Primitives(const Primitives&) = delete;
  Primitives& operator=(const Primitives&) = delete;

 private:
  bool before_;
};

/// Both ways, as far as this machine has them.
std::vector<bool> product_ways() {
  return has_bfloat16_primitives() ? std::vector<bool>{false, true} : std::vector<bool>{false};
}

/// Of y = product + bias: on a GPU, some kernels of cuBLASLt and cuDNN round the product before they add the bias.
Tolerance with_bias() {
  return {.slack = default_device().type == DeviceType::cuda ? 1.0 : 0.0};
}

}  // namespace

TEST_CASE("half: matrix products") {
  for (const bool primitives : product_ways()) {
    const Primitives way(primitives);
    for (const int64_t n : {1, 31, 33}) {
      const Tensor a = random_tensor({17, 70}, 1);
      const Tensor b = random_tensor({70, n}, 2);
      check_half("matmul", [](const Tensors& xs) { return matmul(xs[0], xs[1]); }, {a, b});
      check_half("transposed", [](const Tensors& xs) { return matmul(transpose(xs[0], 0, 1), transpose(xs[1], 0, 1)); },
                 {random_tensor({70, 17}, 3), random_tensor({n, 70}, 4)});
      const Tensor weight = random_tensor({n, 70}, 5);
      check_half(
          "linear", [](const Tensors& xs) { return linear(xs[0], xs[1], xs[2]); },
          {random_tensor({2, 5, 6, 70}, 6), weight, random_tensor({n}, 7)}, with_bias());
      check_half("linear of pixels",
                 [](const Tensors& xs) {
                   return permute(linear(permute(xs[0], {0, 2, 3, 1}), xs[1]), {0, 3, 1, 2});
                 },
                 {random_tensor({2, 70, 5, 6}, 6), weight});
    }
    check_half("batched", [](const Tensors& xs) { return matmul(xs[0], xs[1]); },
               {random_tensor({2, 3, 5, 18}, 1), random_tensor({3, 18, 20}, 2)}, {}, {.rounds = 1, .slack = 2});
    check_half("batched, one matrix", [](const Tensors& xs) { return matmul(xs[0], xs[1]); },
               {random_tensor({3, 5, 18}, 1), random_tensor({18, 20}, 2)});
  }
}

TEST_CASE("half: convolutions") {
  struct Case {
    const char* name;
    Sizes x, weight;
    Conv2dOptions options;
  };
  const Case cases[] = {
      {"3x3", {2, 33, 7, 6}, {31, 33, 3, 3}, {.padding = 1}},
      {"1x1", {2, 33, 7, 6}, {31, 33, 1, 1}, {}},
      {"1x1 stride 2", {2, 33, 7, 6}, {31, 33, 1, 1}, {.stride = 2}},
      {"3x3 stride 2", {2, 3, 9, 8}, {17, 3, 3, 3}, {.stride = 2, .padding = 1}},
      {"patches", {2, 3, 8, 12}, {20, 3, 4, 4}, {.stride = 4}},
      {"grouped", {2, 12, 7, 6}, {8, 3, 3, 3}, {.padding = 1, .groups = 4}},
      {"depthwise 7x7", {2, 33, 9, 8}, {33, 1, 7, 7}, {.padding = 3, .groups = 33}},
      {"depthwise 3x3, few channels", {2, 5, 9, 8}, {5, 1, 3, 3}, {.padding = 1, .groups = 5}},
      {"depthwise 5x5, no padding", {1, 40, 9, 8}, {40, 1, 5, 5}, {.groups = 40}},
      {"dilated", {2, 5, 9, 8}, {4, 5, 3, 2}, {.dilation = 2}},
  };
  for (const bool primitives : product_ways()) {
    const Primitives way(primitives);
    for (const Case& c : cases) {
      check_half(
          c.name, [&](const Tensors& xs) { return conv2d(xs[0], xs[1], xs[2], c.options); },
          {random_tensor(c.x, 1), random_tensor(c.weight, 2), random_tensor({c.weight[0]}, 3)}, with_bias());
    }
  }
}

TEST_CASE("half: products go to primitives where the processor's are faster than float32's") {
  CHECK(avx512_bf16_is_faster("AMD", 25) == true);
  CHECK(avx512_bf16_is_faster("AMD", 26) == true);
  CHECK(avx512_bf16_is_faster("Intel", 6) == false);
  CHECK_FALSE(avx512_bf16_is_faster("AMD", 27).has_value());
  CHECK_FALSE(avx512_bf16_is_faster("Intel", 19).has_value());
  if (!has_bfloat16_primitives() || std::getenv("NORMA_BFLOAT16") != nullptr) {
    CHECK((std::getenv("NORMA_BFLOAT16") != nullptr || !uses_bfloat16_primitives()));
    return;
  }
  std::ifstream in("/proc/cpuinfo");
  const std::string cpu(std::istreambuf_iterator<char>(in), {});
  const auto has = [&](const char* text) { return cpu.find(text) != std::string::npos; };
  const bool measured = has("AuthenticAMD") && (has("cpu family\t: 25") || has("cpu family\t: 26"));
  if (std::getenv("ONEDNN_MAX_CPU_ISA") == nullptr && std::getenv("NORMA_SIMD") == nullptr &&
      (has(" amx_bf16") || (has(" avx512_bf16") && measured))) {
    CHECK(uses_bfloat16_primitives());
  }
  CHECK(bfloat16_is_fast() == uses_bfloat16_primitives());
  CHECK(bfloat16_text().starts_with(uses_bfloat16_primitives() ? "oneDNN's primitives (A" : "through float32: "));
  const Primitives other(!uses_bfloat16_primitives());
  CHECK_FALSE(bfloat16_is_fast());
}

TEST_CASE("half: the weight gradient of a depthwise convolution is ours") {
  for (const bool primitives : product_ways()) {
    const Primitives way(primitives);
    const kernels::Conv2dCase conv{.dtype = DType::bfloat16,
                                   .channels_last = true,
                                   .n = 1,
                                   .c = 64,
                                   .h = 9,
                                   .w = 8,
                                   .o = 64,
                                   .kh = 7,
                                   .kw = 7,
                                   .oh = 9,
                                   .ow = 8,
                                   .padding_h = 3,
                                   .padding_w = 3,
                                   .groups = 64};
    const auto chosen = [&](kernels::Conv2dPass pass) { return kernels::conv_cpu.choose(conv, pass).name; };
    CHECK(chosen(kernels::Conv2dPass::weight_gradient) == "through_float");
    CHECK(chosen(kernels::Conv2dPass::forward) == (primitives ? "onednn" : "through_float"));
  }
}

TEST_CASE("half: every implementation can be forced") {
  const Tensor x = random_tensor({2, 5, 6, 7}, 1);
  const Tensor weight = random_tensor({4, 5, 3, 3}, 2);
  const Op f = [](const Tensors& xs) { return conv2d(xs[0], xs[1]); };
  for (const std::string& name : conv2d_implementations()) {
    set_conv2d_implementation(name);
    check_half(name, f, {x, weight});
    set_conv2d_implementation("");
  }
  for (const std::string& name : matmul_implementations()) {
    set_matmul_implementation(name);
    check_half(name, [](const Tensors& xs) { return matmul(xs[0], xs[1]); },
               {random_tensor({9, 40}, 1), random_tensor({40, 7}, 2)});
    set_matmul_implementation("");
  }
}

TEST_CASE("half: empty tensors and contraction over nothing") {
  for (const DType half : kHalves) {
    const TensorOptions options{.dtype = half};
    CHECK(conv2d(zeros({0, 3, 5, 5}, options), zeros({4, 3, 3, 3}, options)).sizes() == Sizes{0, 4, 3, 3});
    CHECK(sum(matmul(zeros({2, 0}, options), zeros({0, 3}, options))).to_vector<double>()[0] == 0);
    CHECK(relu(zeros({0, 2}, options)).dtype() == half);
  }
}

TEST_CASE("half: dtypes do not mix where an op wants one") {
  const Tensor half = zeros({2, 3}, {.dtype = DType::bfloat16});
  CHECK(error_of([&] { matmul(half, zeros({3, 4})); }) == "matmul: b: expected dtype bfloat16, got float32");
  CHECK(error_of([&] { linear(half, zeros({4, 3})); }) == "linear: weight: expected dtype bfloat16, got float32");
  CHECK(error_of([&] {
          cross_entropy(half, zeros({2, 3}));
        }) ==
        "cross_entropy: target: expected int64 classes of sizes [2] or bfloat16 probabilities of sizes [2, 3], got "
        "float32 [2, 3]");
}

}  // namespace norma::test

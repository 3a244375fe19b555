#include "ops/conv/conv.h"

#include "core/parallel.h"
#include "core/tape.h"
#include "error_text.h"
#include "ops/conv/kernels.h"
#include "ops/device_with.h"
#include "ops/libraries/onednn/isa.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <cstdlib>
#include <limits>
#include <string>
#include <string_view>

namespace norma::test {
namespace {

/// The float64 numbers ((i * a) % m - m / 2) / 4, row-major: exact in float32 and the same in PyTorch.
Tensor sequence(const Sizes& sizes, int64_t a, int64_t m) {
  std::vector<double> values;
  for (int64_t i = 0; i < sizes.numel(); ++i) {
    values.push_back(static_cast<double>(i * a % m - m / 2) / 4);
  }
  return from_vector(values, sizes);
}

std::string error_of(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                     const Conv2dOptions& options = {}) {
  return test::error_of([&] { conv2d(x, weight, bias, options); });
}

TensorFunction conv(const Conv2dOptions& options) {
  return [options](const Tensors& in) -> Tensors {
    return {conv2d(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), options)};
  };
}

constexpr MemoryFormat kChannelsLast = MemoryFormat::channels_last;

bool is_strictly_channels_last(const Tensor& x) {
  return x.suggest_memory_format() == kChannelsLast;
}

}  // namespace

TEST_CASE("conv2d: values and gradients as PyTorch, asymmetric stride, padding and dilation") {
  // def seq(*s, a, m): return ((torch.arange(math.prod(s), dtype=torch.float64) * a) % m - m // 2).reshape(s) / 4
  // x = seq(1, 2, 4, 5, a=7, m=11).requires_grad_(); w = seq(2, 2, 3, 2, a=5, m=7).requires_grad_()
  // y = F.conv2d(x, w, torch.tensor([0.5, -1.0]).double(), stride=(2, 1), padding=(1, 0), dilation=(1, 2))
  // y.backward(seq(*y.shape, a=3, m=5))      (torch 1.13)
  const Tensor y_expected = from_vector<double>(
      {-0.625, 0.875, 0.3125, 1.4375, -2.6875, 1.4375, 1.0625, -0.4375, -0.5625, -0.3125, 2.0, -1.1875}, {1, 2, 2, 3});
  const Tensor dx_expected = from_vector<double>(
      {-0.1875, 0.1875, 0.0,  -0.25, 0.375,   -0.75, 0.0625,  0.25,   0.3125,  -0.625, 0.0,    0.375, -0.4375, -0.25,
       0.375,   0.375,  0.0,  -0.25, 0.25,    -0.25, -0.3125, 0.1875, -0.4375, 0.1875, -0.375, 0.25,  -0.625,  -0.0625,
       0.0625,  0.25,   0.25, 0.125, -0.3125, 0.375, -0.1875, -0.25,  -0.25,   0.75,   0.0,    -0.375},
      {1, 2, 4, 5});
  const Tensor dw_expected = from_vector<double>(
      {-0.375, -0.375, 0.5,    0.125, 0.25,   0.5625, 1.0,     -0.375, -0.5,    0.5,    -0.75,   0.25,
       -0.5,   0.6875, 0.0625, 0.25,  0.1875, 0.375,  -0.3125, -0.5,   -0.8125, 0.0625, -0.6875, 0.1875},
      {2, 2, 3, 2});
  for (const DType dtype : {DType::float32, DType::float64}) {
    for (const Layout layout : kLayouts) {
      CAPTURE(to_string(layout));
      Tensor x = in_layout(copy_of(sequence({1, 2, 4, 5}, 7, 11), MemoryFormat::contiguous, dtype), layout);
      Tensor weight = in_layout(copy_of(sequence({2, 2, 3, 2}, 5, 7), MemoryFormat::contiguous, dtype), layout);
      x.set_requires_grad();
      weight.set_requires_grad();
      const Tensor bias = copy_of(from_vector<double>({0.5, -1.0}, {2}), MemoryFormat::contiguous, dtype);
      const Tensor y = conv2d(x, weight, bias, {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}});
      y.backward(copy_of(sequence(y.sizes(), 3, 5), MemoryFormat::contiguous, dtype));
      // Small multiples of 1/16: exact in float32 too.
      CHECK(max_difference(y, y_expected) <= 1e-6);
      CHECK(max_difference(x.grad(), dx_expected) <= 1e-6);
      CHECK(max_difference(weight.grad(), dw_expected) <= 1e-6);
    }
  }
}

TEST_CASE("conv2d: values and gradients as PyTorch, 2 groups") {
  // x = seq(1, 4, 3, 4, a=7, m=11).requires_grad_(); w = seq(4, 2, 2, 2, a=5, m=7).requires_grad_()
  // y = F.conv2d(x, w, None, groups=2); y.backward(seq(*y.shape, a=3, m=5))      (torch 1.13)
  const Tensor y_expected = from_vector<double>(
      {1.25,   -1.4375, 2.75,   -1.25,  2.9375, -0.4375, 0.0,   0.1875, -1.0,   0.0625, -1.125, 1.125,
       -0.375, -0.375,  -0.375, -0.375, -0.375, -0.375,  1.125, -1.125, 0.0625, -1.0,   0.1875, 0.0},
      {1, 4, 2, 3});
  const Tensor dw_expected =
      from_vector<double>({0.5,    -1.0625, -0.9375, 1.625,  -1.0625, 1.5,     1.625,  -0.625,  -0.0625, 0.375,  0.3125,
                           -0.625, 0.375,   -0.5625, -0.625, 0.5,     0.5,     -0.625, -0.5625, 0.375,   -0.625, 0.3125,
                           0.375,  -0.0625, -0.625,  1.625,  1.5,     -1.0625, 1.625,  -0.9375, -1.0625, 0.5},
                          {4, 2, 2, 2});
  Tensor x = sequence({1, 4, 3, 4}, 7, 11).set_requires_grad();
  Tensor weight = sequence({4, 2, 2, 2}, 5, 7).set_requires_grad();
  const Tensor y = conv2d(x, weight, {}, {.groups = 2});
  y.backward(sequence(y.sizes(), 3, 5));
  CHECK(max_difference(y, y_expected) <= 1e-12);
  CHECK(max_difference(weight.grad(), dw_expected) <= 1e-12);
}

TEST_CASE("conv2d: gradients by finite differences") {
  const Tensor bias = random_tensor({4}, 3);
  check_gradients("3x3", conv({}), {random_tensor({2, 3, 5, 4}, 1), random_tensor({4, 3, 3, 3}, 2), bias});
  check_gradients("1x1", conv({}), {random_tensor({2, 3, 4, 5}, 1), random_tensor({4, 3, 1, 1}, 2), bias});
  check_gradients("stride 2, padding 1", conv({.stride = 2, .padding = 1}),
                  {random_tensor({1, 3, 7, 6}, 1), random_tensor({4, 3, 3, 3}, 2), bias});
  check_gradients("asymmetric", conv({.stride = {1, 2}, .padding = {0, 2}, .dilation = {2, 1}}),
                  {random_tensor({1, 3, 6, 5}, 1), random_tensor({4, 3, 2, 3}, 2), bias});
  check_gradients("2 groups", conv({.padding = 1, .groups = 2}),
                  {random_tensor({1, 6, 4, 5}, 1), random_tensor({4, 3, 3, 3}, 2), bias});
  check_gradients("depthwise 7x7", conv({.padding = 3, .groups = 9}),
                  {random_tensor({1, 9, 4, 3}, 1), random_tensor({9, 1, 7, 7}, 2), random_tensor({9}, 3)});
  check_gradients("depthwise 3x3, stride 2", conv({.stride = 2, .padding = 1, .groups = 5}),
                  {random_tensor({1, 5, 4, 5}, 1), random_tensor({5, 1, 3, 3}, 2), random_tensor({5}, 3)});
  check_gradients("without bias, one channel", conv({.padding = 1}),
                  {random_tensor({1, 1, 4, 5}, 1), random_tensor({3, 1, 3, 3}, 2)});
}

TEST_CASE("conv2d: second derivatives by finite differences") {
  check_gradients("stride 2, padding 1, bias", conv({.stride = 2, .padding = 1}),
                  {random_tensor({1, 2, 4, 3}, 1), random_tensor({3, 2, 3, 2}, 2), random_tensor({3}, 3)},
                  /* twice= */ true);
  check_gradients("2 groups", conv({.padding = 1, .groups = 2}),
                  {random_tensor({1, 4, 3, 2}, 1), random_tensor({2, 2, 3, 3}, 2)}, /* twice= */ true);
}

TEST_CASE("conv2d: the result is channels_last iff the input or the weight strictly is") {
  const Tensor x = random_tensor({2, 3, 5, 4}, 1, DType::float32);
  const Tensor weight = random_tensor({6, 3, 3, 3}, 2, DType::float32);
  const Tensor x_last = copy_of(x, kChannelsLast);
  const Tensor weight_last = copy_of(weight, kChannelsLast);
  CHECK(conv2d(x, weight).is_contiguous());
  CHECK(conv2d(x_last, weight).strides() == channels_last_strides({2, 6, 3, 2}));
  CHECK(conv2d(x, weight_last).strides() == channels_last_strides({2, 6, 3, 2}));
  CHECK(conv2d(x_last, weight_last).strides() == channels_last_strides({2, 6, 3, 2}));
  CHECK(conv2d(in_layout(x, Layout::strided), weight).is_contiguous());
}

TEST_CASE("conv2d: formats of 1x1 and depthwise weights, whose strides can be ambiguous") {
  const Tensor x = random_tensor({2, 3, 5, 4}, 1, DType::float32);
  const Tensor one = random_tensor({6, 3, 1, 1}, 2, DType::float32);
  CHECK(conv2d(x, one).is_contiguous());
  CHECK_FALSE(is_strictly_channels_last(conv2d(x, one)));
  CHECK(is_strictly_channels_last(conv2d(x, copy_of(one, kChannelsLast))));
  const Tensor depthwise = random_tensor({3, 1, 3, 3}, 2, DType::float32);
  CHECK_FALSE(is_strictly_channels_last(conv2d(x, depthwise, {}, {.groups = 3})));
  CHECK(is_strictly_channels_last(conv2d(copy_of(x, kChannelsLast), depthwise, {}, {.groups = 3})));
}

TEST_CASE("conv2d: gradients have the format of the result and the strides of the weight") {
  for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
    for (const Layout weight_layout : {Layout::contiguous, Layout::channels_last}) {
      const Tensor x = in_layout(random_tensor({2, 3, 5, 4}, 1, DType::float32), layout).set_requires_grad();
      const Tensor weight =
          in_layout(random_tensor({6, 3, 3, 2}, 2, DType::float32), weight_layout).set_requires_grad();
      const Tensor y = conv2d(x, weight);
      const Tensors gradients = grad({y}, {x, weight}, {random_tensor(y.sizes(), 3, DType::float32)});
      CHECK(is_strictly_channels_last(gradients[0]) == is_strictly_channels_last(y));
      CHECK(gradients[1].strides() == weight.strides());
    }
  }
  // A dense weight in yet another order.
  const Tensor base = random_tensor({3, 6, 2, 3}, 2, DType::float32);
  const Tensor weight = alias(base, {6, 3, 3, 2}, {6, 36, 1, 3}, 0).detach().set_requires_grad();
  const Tensor x = random_tensor({2, 3, 5, 4}, 1, DType::float32);
  const Tensor y = conv2d(x, weight);
  CHECK(grad({y}, {weight}, {random_tensor(y.sizes(), 3, DType::float32)})[0].strides() == weight.strides());
}

TEST_CASE("conv2d: only wanted gradients are computed, and only what they need is saved") {
  const Tensor x = random_tensor({2, 3, 5, 4}, 1, DType::float32);
  const Tensor weight = random_tensor({6, 3, 3, 2}, 2, DType::float32).set_requires_grad();
  const Tensor y = conv2d(x, weight);
  const Tape tape(y);
  const auto& node = tape.nodes().back();
  REQUIRE(node->saved.size() == 1);  // the weight serves the gradient of x only
  CHECK(node->saved[0].position() == 0);
  CHECK(node->saved[0].value().storage() == x.storage());
  CHECK_FALSE(conv2d(x, weight.detach()).requires_grad());
}

TEST_CASE("conv2d: an empty batch gives an empty result and zero gradients of the weight") {
  const Tensor x = zeros({0, 3, 5, 4}).set_requires_grad();
  const Tensor weight = random_tensor({6, 3, 3, 2}, 2, DType::float32).set_requires_grad();
  const Tensor bias = random_tensor({6}, 3, DType::float32).set_requires_grad();
  const Tensor y = conv2d(x, weight, bias);
  CHECK(y.sizes() == Sizes{0, 6, 3, 3});
  y.backward(zeros({0, 6, 3, 3}));
  CHECK(x.grad().sizes() == x.sizes());
  CHECK(max_difference(weight.grad(), zeros({6, 3, 3, 2})) == 0);
  CHECK(max_difference(bias.grad(), zeros({6})) == 0);
}

TEST_CASE("conv2d: images without rows or columns give the bias, where padding makes room for a kernel") {
  const DefaultDeviceGuard guard(device_with("eigen", conv2d_implementations()));
  for (const std::string& implementation : conv2d_implementations()) {
    CAPTURE(implementation);
    const Conv2dImplementationGuard forced(implementation);
    for (const int64_t groups : {1, 16}) {
      for (const Sizes& sizes : {Sizes{2, 16, 0, 4}, Sizes{2, 16, 4, 0}, Sizes{2, 16, 0, 0}}) {
        for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
          CAPTURE(groups);
          CAPTURE(norma::to_string(sizes));
          const Tensor x = zeros(sizes, {.format = format}).set_requires_grad();
          const Tensor weight = random_tensor({16, 16 / groups, 3, 3}, 1, DType::float32).set_requires_grad();
          const Tensor bias = random_tensor({16}, 2, DType::float32).set_requires_grad();
          const Tensor y = conv2d(x, weight, bias, {.padding = 2, .groups = groups});
          CHECK(y.sizes() == Sizes{2, 16, sizes[2] + 2, sizes[3] + 2});
          CHECK(max_difference(y, expand(reshape(bias, {1, 16, 1, 1}), y.sizes())) == 0);
          y.backward(ones(y.sizes()));
          CHECK(x.grad().sizes() == sizes);
          CHECK(max_difference(weight.grad(), zeros(weight.sizes())) == 0);
          CHECK(max_difference(bias.grad(), full({16}, static_cast<double>(y.numel()) / 16)) == 0);
        }
      }
    }
  }
}

TEST_CASE("conv2d: a weight gradient is whole where the stride is wider than the image") {
  struct Shape {
    int64_t c, h, w, o, kernel, stride;
  };
  // As in a ResNet's last stage for images of 16x16, and beside it. Only processors with AVX-512 BF16 can fail this.
  for (const Shape s : {Shape{64, 1, 1, 64, 3, 2}, Shape{48, 9, 1, 8, 5, 2}, Shape{64, 4, 2, 32, 7, 4}}) {
    for (const DType dtype : {DType::bfloat16, DType::float32}) {
      CAPTURE(s.w);
      CAPTURE(to_string(dtype));
      const Tensor x = to(random_tensor({4, s.c, s.h, s.w}, 1, DType::float32), dtype);
      const Tensor weight = to(random_tensor({s.o, s.c, s.kernel, s.kernel}, 2, DType::float32), dtype);
      const auto gradient = [&](DType computed) {
        const Tensor w = copy_of(weight, MemoryFormat::contiguous, computed).set_requires_grad();
        const Tensor y = conv2d(copy_of(x, MemoryFormat::contiguous, computed), w, {},
                                {.stride = s.stride, .padding = s.kernel / 2});
        {  // memory that is given out again holds no numbers
          Tensors used;
          for (int64_t count = 64; count <= 4 * weight.numel(); count *= 2) {
            used.push_back(full({count}, std::numeric_limits<double>::quiet_NaN()));
          }
        }
        y.backward(ones(y.sizes(), {.dtype = computed}));
        return to(w.grad(), DType::float64);
      };
      const Tensor expected = gradient(DType::float64);
      CHECK(max_difference(gradient(dtype), expected) <= 0.01 * max_difference(expected, zeros_like(expected)));
    }
  }
}

TEST_CASE("conv2d: products of pixels have no stride that is too wide") {
  const kernels::Conv2dImplementation* const library = kernels::conv2d_onednn;
  if (library == nullptr) {
    return;
  }
  const auto supports = [&](DType dtype, int64_t kernel) {
    return library->supports({.dtype = dtype,
                              .channels_last = true,
                              .n = 4,
                              .c = 64,
                              .h = 1,
                              .w = 1,
                              .o = 32,
                              .kh = kernel,
                              .kw = kernel,
                              .oh = 1,
                              .ow = 1,
                              .stride_h = 2,
                              .stride_w = 2,
                              .padding_h = kernel / 2,
                              .padding_w = kernel / 2},
                             kernels::Conv2dPass::weight_gradient);
  };
  CHECK(supports(DType::float32, 1));
  CHECK(supports(DType::float32, 3));
  CHECK_FALSE(supports(DType::bfloat16, 3));
  const std::string_view instructions = onednn::bfloat16_instructions();
  CHECK(supports(DType::bfloat16, 1) == (instructions == "AVX512_BF16" || instructions == "AMX"));
}

TEST_CASE("conv2d: strided 1x1 weight gradients with few channels stay inside their memory") {
  const DefaultDeviceGuard guard(device_with("eigen", conv2d_implementations()));
  // oneDNN writes outside its workspace here (uxlfoundation/oneDNN#6035): wrong numbers, or a crash under ASan.
  struct Shape {
    int64_t n, c, size, o;
  };
  for (const Shape s : {Shape{32, 4, 64, 8}, Shape{32, 4, 32, 8}, Shape{3, 1, 9, 5}, Shape{2, 15, 7, 16}}) {
    for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
      CAPTURE(s.c);
      const Conv2dOptions options{.stride = 2};
      const Tensor x = random_tensor({s.n, s.c, s.size, s.size}, 1, DType::float32);
      const Tensor weight = random_tensor({s.o, s.c, 1, 1}, 2, DType::float32);
      const int64_t out = (s.size - 1) / 2 + 1;
      const Tensor dy = random_tensor({s.n, s.o, out, out}, 3, DType::float32);
      const auto weight_gradient = [&](DType dtype) {
        const Tensor w = copy_of(weight, MemoryFormat::contiguous, dtype).set_requires_grad();
        const Tensor y = conv2d(in_layout(copy_of(x, MemoryFormat::contiguous, dtype), layout), w, {}, options);
        y.backward(copy_of(dy, MemoryFormat::contiguous, dtype));
        return w.grad();
      };
      // Sums of up to 32768 products: their sum is some hundreds.
      CHECK(max_difference(weight_gradient(DType::float32), weight_gradient(DType::float64)) <= 1e-2);
    }
  }
  const kernels::Conv2dCase guarded{.channels_last = true,
                                    .n = 32,
                                    .c = 4,
                                    .h = 64,
                                    .w = 64,
                                    .o = 8,
                                    .kh = 1,
                                    .kw = 1,
                                    .oh = 33,
                                    .ow = 33,
                                    .stride_h = 2,
                                    .stride_w = 2,
                                    .padding_h = 1,
                                    .padding_w = 1};  // without padding it is a matrix product
  for (const std::string& name : conv2d_implementations()) {
    const Conv2dImplementationGuard forced(name);
    CHECK(kernels::conv_kernels.at("conv2d", default_device())
              ->choose(guarded, kernels::Conv2dPass::weight_gradient)
              .name == (name == "reference" ? "reference" : "eigen"));
  }
}

TEST_CASE("conv2d: strided 1x1 in channels_last against Eigen, where the stride leaves a rest") {
  const DefaultDeviceGuard guard(device_with("eigen", conv2d_implementations()));
  for (const auto& [h, w, stride] : {std::tuple{7, 9, Pair(2, 3)}, {8, 6, Pair(2, 1)}, {5, 4, Pair(1, 3)}}) {
    CAPTURE(h);
    const Conv2dOptions options{.stride = stride};
    Tensors results[2];
    for (const int i : {0, 1}) {
      const Conv2dImplementationGuard forced(i == 0 ? "" : "eigen");
      const Tensor x =
          in_layout(random_tensor({3, 19, h, w}, 1, DType::float32), Layout::channels_last).set_requires_grad();
      const Tensor weight = random_tensor({33, 19, 1, 1}, 2, DType::float32).set_requires_grad();
      const Tensor bias = random_tensor({33}, 3, DType::float32).set_requires_grad();
      const Tensor y = conv2d(x, weight, bias, options);
      y.backward(in_layout(random_tensor(y.sizes(), 4, DType::float32), Layout::channels_last));
      results[i] = {y, x.grad(), weight.grad(), bias.grad()};
    }
    for (size_t i = 0; i < 4; ++i) {
      CAPTURE(i);
      CHECK(max_difference(results[0][i], results[1][i]) <= 1e-5);  // sums of up to 108 products below 1
    }
  }
}

TEST_CASE("conv2d: reordered weights that inference keeps follow every change of the weight") {
  const DefaultDeviceGuard guard(device_with("eigen", conv2d_implementations()));
  struct Shape {
    int64_t c, o, kernel, stride;
  };
  const NoGradGuard no_grad;
  // A 3x3 kernel, a matrix product large enough to be given packed weights, and one that skips pixels.
  for (const Shape s : {Shape{19, 33, 3, 1}, Shape{64, 80, 1, 1}, Shape{64, 80, 1, 2}}) {
    CAPTURE(s.kernel);
    const Conv2dOptions options{.stride = s.stride, .padding = s.kernel / 2};
    const Tensor x = in_layout(random_tensor({3, s.c, 35, 34}, 1, DType::float32), Layout::channels_last);
    const Tensor weight = random_tensor({s.o, s.c, s.kernel, s.kernel}, 2, DType::float32).set_requires_grad();
    const auto expected = [&] {
      const Conv2dImplementationGuard forced("eigen");
      return conv2d(x, weight, {}, options);
    };
    const Tensor before = conv2d(x, weight, {}, options);
    CHECK(max_difference(before, expected()) <= 1e-4);
    CHECK(max_difference(conv2d(x, weight, {}, options), before) == 0);
    CHECK(max_difference(conv2d(narrow(x, 0, 0, 2), weight, {}, options), narrow(before, 0, 0, 2)) <= 1e-4);
    fill_(narrow(weight.detach(), 0, 1, 2), 0.5);
    CHECK(differ(conv2d(x, weight, {}, options), before, 1));
    CHECK(max_difference(conv2d(x, weight, {}, options), expected()) <= 1e-3);  // sums of up to 171 products
    // Another tensor with the same values in the same memory order is not taken for the first.
    const Tensor other = random_tensor({s.o, s.c, s.kernel, s.kernel}, 3, DType::float32).set_requires_grad();
    CHECK(differ(conv2d(x, other, {}, options), conv2d(x, weight, {}, options), 1));
  }
}

TEST_CASE("conv2d: weights that are views of one memory are not taken for each other in inference") {
  const DefaultDeviceGuard guard(device_with("eigen", conv2d_implementations()));
  const NoGradGuard no_grad;
  for (const std::string& implementation : conv2d_implementations()) {
    CAPTURE(implementation);
    const Conv2dImplementationGuard forced(implementation);
    const Tensor x = random_tensor({1, 16, 6, 5}, 1, DType::float32);
    const Tensor all = random_tensor({32, 16, 3, 3}, 2, DType::float32);
    const Tensor first = narrow(all, 0, 0, 16);
    // All begin at the same element. The last has the memory of `first` in the order of channels_last.
    for (const Tensor& view :
         {all, first, transpose(first, 0, 1), permute(reshape(first, {16, 3, 3, 16}), {0, 3, 1, 2})}) {
      CAPTURE(norma::to_string(view.strides()));
      const Tensor weight = view.detach().set_requires_grad();
      const Tensor expected = conv2d(x, copy_of(view.detach()), {}, {.padding = 1});
      CHECK(max_difference(conv2d(x, weight, {}, {.padding = 1}), expected) <= 1e-4);
    }
  }
}

TEST_CASE("conv2d: our own kernels give the same bits for any number of threads") {
  const DefaultDeviceGuard guard(device_with("eigen", conv2d_implementations()));
  const int before = num_threads();
  const Tensor x = random_tensor({9, 40, 7, 6}, 1, DType::float32);
  for (const std::string name : {"depthwise", "eigen"}) {
    const Conv2dImplementationGuard forced(name);
    for (const Layout layout : {Layout::contiguous, Layout::channels_last}) {
      Tensors results[2];
      for (const int threads : {1, 3}) {
        set_num_threads(threads);
        const Tensor x_in = in_layout(x, layout).set_requires_grad();
        const Tensor weight = random_tensor({40, 1, 7, 7}, 2, DType::float32).set_requires_grad();
        const Tensor bias = random_tensor({40}, 3, DType::float32).set_requires_grad();
        const Tensor y = conv2d(x_in, weight, bias, {.padding = 3, .groups = 40});
        y.backward(random_tensor(y.sizes(), 4, DType::float32));
        results[threads == 1 ? 0 : 1] = {y, x_in.grad(), weight.grad(), bias.grad()};
      }
      for (size_t i = 0; i < 4; ++i) {
        CHECK(max_difference(results[0][i], results[1][i]) == 0);
      }
    }
  }
  set_num_threads(before);
}

TEST_CASE("conv2d: implementations are chosen in order, by name, and by what they support") {
  const DefaultDeviceGuard guard(device_with("eigen", conv2d_implementations()));
  const kernels::Conv2dCase single{.n = 1, .c = 3, .h = 4, .w = 4, .o = 5, .kh = 3, .kw = 3, .oh = 2, .ow = 2};
  kernels::Conv2dCase wide = single;
  wide.dtype = DType::float64;
  const auto chosen = [](const kernels::Conv2dCase& c) {
    return std::string(
        kernels::conv_kernels.at("conv2d", default_device())->choose(c, kernels::Conv2dPass::forward).name);
  };
  CHECK(conv2d_implementations().back() == "reference");
  CHECK(chosen(wide) == "eigen");
  for (const std::string& name : conv2d_implementations()) {
    const Conv2dImplementationGuard forced(name);
    const bool supported = name != "depthwise" && !name.starts_with("winograd");
    CHECK(chosen(single) == (supported ? name : conv2d_implementations()[1]));
  }
  kernels::Conv2dCase depthwise = single;
  depthwise.c = depthwise.o = depthwise.groups = 32;
  CHECK(chosen(depthwise) == "depthwise");
  CHECK_THROWS_WITH_AS(set_conv2d_implementation("cudnn"),
                       doctest::Contains("conv2d: implementation: expected one of depthwise, "), Error);
}

TEST_CASE("conv2d: error texts") {
  const Tensor x = zeros({2, 6, 5, 4});
  const Tensor weight = zeros({4, 6, 3, 3});
  CHECK(error_of({}, weight) == "conv2d: x: expected a tensor, got none");
  CHECK(error_of(x, {}) == "conv2d: weight: expected a tensor, got none");
  CHECK(error_of(zeros({6, 5, 4}), weight) == "conv2d: x: expected rank 4, got rank 3 (sizes [6, 5, 4])");
  CHECK(error_of(x, zeros({4, 6, 3})) == "conv2d: weight: expected rank 4, got rank 3 (sizes [4, 6, 3])");
  CHECK(error_of(zeros({2, 6, 5, 4}, {.dtype = DType::int64}), weight) ==
        "conv2d: x: expected a floating dtype, got int64");
  CHECK(error_of(x, zeros({4, 6, 3, 3}, {.dtype = DType::float64})) ==
        "conv2d: weight: expected dtype float32, got float64");
  CHECK(error_of(zeros({2, 6, 5, 4}, {.dtype = DType::bfloat16}), weight) ==
        "conv2d: weight: expected dtype bfloat16, got float32");
  CHECK(error_of(zeros({2, 0, 5, 4}), weight) == "conv2d: x: expected at least 1 channel, got sizes [2, 0, 5, 4]");
  CHECK(error_of(x, zeros({4, 6, 0, 3})) == "conv2d: weight: expected no size of 0, got sizes [4, 6, 0, 3]");
  CHECK(error_of(x, zeros({4, 3, 3, 3})) ==
        "conv2d: weight: expected 6 input channels per group (6 channels in 1 groups), got 3 (sizes [4, 3, 3, 3])");
  CHECK(error_of(x, zeros({4, 6, 3, 3}), {}, {.groups = 2}) ==
        "conv2d: weight: expected 3 input channels per group (6 channels in 2 groups), got 6 (sizes [4, 6, 3, 3])");
  CHECK(error_of(x, weight, {}, {.groups = 4}) == "conv2d: groups: expected a divisor of the 6 input channels, got 4");
  CHECK(error_of(x, zeros({4, 2, 3, 3}), {}, {.groups = 3}) ==
        "conv2d: groups: expected a divisor of the 4 output channels, got 3");
  CHECK(error_of(x, weight, {}, {.groups = 0}) == "conv2d: groups: expected a value of at least 1, got 0");
  CHECK(error_of(x, weight, {}, {.stride = {1, 0}}) == "conv2d: stride: expected values of at least 1, got (1, 0)");
  CHECK(error_of(x, weight, {}, {.padding = -1}) == "conv2d: padding: expected values of at least 0, got (-1, -1)");
  CHECK(error_of(x, weight, {}, {.dilation = 0}) == "conv2d: dilation: expected values of at least 1, got (0, 0)");
  CHECK(error_of(x, zeros({4, 6, 5, 5})) ==
        "conv2d: weight: expected a kernel no larger than the padded input (5, 4), got (5, 5)");
  CHECK(error_of(x, weight, {}, {.padding = 1, .dilation = 4}) ==
        "conv2d: weight: expected a kernel no larger than the padded input (7, 6), got (9, 9)");
  CHECK(error_of(x, weight, zeros({6})) == "conv2d: bias: expected sizes [4], got [6]");
  CHECK(error_of(x, weight, zeros({4}, {.dtype = DType::float64})) ==
        "conv2d: bias: expected dtype float32, got float64");
}

}  // namespace norma::test

#include "core/copy.h"
#include "core/tape.h"
#include "ops/conv/conv.h"
#include "ops/conv_shapes.h"
#include "support.h"

#include <string>

namespace norma::test {
namespace {

Sizes output_sizes(const ConvShape& s) {
  const Conv2dOptions& q = s.options;
  return {s.n, s.o, (s.h + 2 * q.padding.h - q.dilation.h * (s.kh - 1) - 1) / q.stride.h + 1,
          (s.w + 2 * q.padding.w - q.dilation.w * (s.kw - 1) - 1) / q.stride.w + 1};
}

/// A convolution and its gradients by the definition, in float64 on the CPU.
struct ConvReference {
  Tensor y, dx, dweight, dbias;

  ConvReference(const ConvShape& s, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& dy) {
    const DefaultDeviceGuard cpu(kCpu);
    const Conv2dImplementationGuard forced("reference");
    const auto leaf = [](const Tensor& values) {
      return values.defined() ? from_vector(values.to_vector<double>(), values.sizes()).set_requires_grad() : Tensor();
    };
    Tensor x_in = leaf(x);
    Tensor weight_in = leaf(weight);
    Tensor bias_in = leaf(bias);
    y = conv2d(x_in, weight_in, bias_in, s.options);
    y.backward(from_vector(dy.to_vector<double>(), dy.sizes()));
    dx = x_in.grad();
    dweight = weight_in.grad();
    std::vector<double> sums(static_cast<size_t>(s.o));
    const std::vector<double> dys = dy.to_vector<double>();
    const int64_t plane = dy.size(2) * dy.size(3);
    for (size_t i = 0; i < dys.size(); ++i) {
      sums[static_cast<size_t>(static_cast<int64_t>(i) / plane % s.o)] += dys[i];
    }
    dbias = from_vector(sums, {s.o});
  }
};

/// Forward and all gradients of one shape, against the definition.
void compare(const ConvShape& s, const std::string& implementation, DType dtype, bool with_bias, Layout x_layout,
             Layout weight_layout, double tolerance) {
  const std::string label = std::string(s.name) + ", " + implementation + ", " + std::string(to_string(dtype)) +
                            (with_bias ? ", bias, " : ", ") + to_string(x_layout) + ", weight " +
                            to_string(weight_layout);
  CAPTURE(label);
  // float32 numbers, so that both dtypes see the same values.
  const Tensor x = random_tensor({s.n, s.c, s.h, s.w}, 1, DType::float32);
  const Tensor weight = random_tensor({s.o, s.c / s.options.groups, s.kh, s.kw}, 2, DType::float32);
  const Tensor bias = with_bias ? random_tensor({s.o}, 3, DType::float32) : Tensor();
  const Tensor dy = random_tensor(output_sizes(s), 4, DType::float32);
  const ConvReference expected(s, x, weight, bias, dy);
  const Conv2dImplementationGuard forced(implementation);

  Tensor x_in = in_layout(copy_of(x, MemoryFormat::contiguous, dtype), x_layout).set_requires_grad();
  Tensor weight_in = in_layout(copy_of(weight, MemoryFormat::contiguous, dtype), weight_layout).set_requires_grad();
  Tensor bias_in = with_bias ? copy_of(bias, MemoryFormat::contiguous, dtype).set_requires_grad() : Tensor();
  const Tensor y = conv2d(x_in, weight_in, bias_in, s.options);
  y.backward(in_layout(copy_of(dy, MemoryFormat::contiguous, dtype), x_layout));
  CHECK(y.dtype() == dtype);
  CHECK(max_difference(y, expected.y) <= tolerance);
  CHECK(max_difference(x_in.grad(), expected.dx) <= tolerance);
  CHECK(max_difference(weight_in.grad(), expected.dweight) <= tolerance);
  if (with_bias) {
    CHECK(max_difference(bias_in.grad(), expected.dbias) <= tolerance);
  }
}

}  // namespace

TEST_CASE("conv2d: every implementation and shape against plain loops, forward and gradients") {
  for (const std::string& implementation : conv2d_implementations()) {
    for (const ConvShape& shape : conv_shapes()) {
      for (const Layout layout : kLayouts) {
        // Sums of up to 500 products of numbers around 1 (their sum up to 60): 1e-4 is some hundred roundings of it.
        compare(shape, implementation, DType::float32, /* with_bias= */ true, layout, layout, 1e-4);
        compare(shape, implementation, DType::float64, /* with_bias= */ true, layout, layout, 1e-11);
      }
      compare(shape, implementation, DType::float32, /* with_bias= */ false, Layout::channels_last, Layout::contiguous,
              1e-4);
      compare(shape, implementation, DType::float32, /* with_bias= */ false, Layout::contiguous, Layout::channels_last,
              1e-4);
      compare(shape, implementation, DType::float64, /* with_bias= */ false, Layout::channels_last, Layout::contiguous,
              1e-11);
      compare(shape, implementation, DType::float64, /* with_bias= */ false, Layout::contiguous, Layout::channels_last,
              1e-11);
    }
  }
}

}  // namespace norma::test

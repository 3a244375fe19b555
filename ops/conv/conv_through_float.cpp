#include "core/buffer.h"
#include "core/kernels.h"
#include "ops/conv/kernels.h"

// Convolutions of 16-bit numbers where no library does them faster: a float32 convolution of converted operands,
// rounded at the end.

namespace norma::kernels {

namespace {

/// A convolution of the same shape in float32.
Conv2dCase wide_case(const Conv2dCase& conv) {
  Conv2dCase wide = conv;
  wide.dtype = DType::float32;
  return wide;
}

void convert(int64_t count, DType to_dtype, void* to, DType from_dtype, const void* from) {
  const CopyItem item{.count = count, .to = to, .from = from};
  tensor_cpu.copy_all(to_dtype, from_dtype, /* factor= */ nullptr, {&item, 1});
}

/// The float32 values of `count` 16-bit elements; nullptr for nullptr.
class Widened {
 public:
  Widened(DType dtype, const void* x, int64_t count) : present_(x != nullptr), values_(present_ ? count : 0) {
    if (present_) {
      convert(count, DType::float32, values_.data(), dtype, x);
    }
  }
  [[nodiscard]] const float* data() const { return present_ ? values_.data() : nullptr; }

 private:
  bool present_;
  Buffer<float> values_;
};

bool supports(const Conv2dCase& conv, Conv2dPass) {
  return is_half(conv.dtype);
}

void forward(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y,
             Storage* /* keep */) {
  const Conv2dCase wide = wide_case(conv);
  const Widened wide_x(conv.dtype, x, conv.x_numel());
  const Widened wide_weight(conv.dtype, weight, conv.weight_numel());
  const Widened wide_bias(conv.dtype, bias, conv.o);
  const int64_t count = conv.y_numel();
  const Buffer<float> wide_y(count);
  conv_cpu.choose(wide, Conv2dPass::forward)
      .forward(wide, wide_x.data(), wide_weight.data(), wide_bias.data(), wide_y.data(), /* keep= */ nullptr);
  convert(count, conv.dtype, y, DType::float32, wide_y.data());
}

void input_gradient(const Conv2dCase& conv, const void* dy, const void* weight, void* dx) {
  const Conv2dCase wide = wide_case(conv);
  const Widened wide_dy(conv.dtype, dy, conv.y_numel());
  const Widened wide_weight(conv.dtype, weight, conv.weight_numel());
  const int64_t count = conv.x_numel();
  const Buffer<float> wide_dx(count);
  conv_cpu.choose(wide, Conv2dPass::input_gradient)
      .input_gradient(wide, wide_dy.data(), wide_weight.data(), wide_dx.data());
  convert(count, conv.dtype, dx, DType::float32, wide_dx.data());
}

void weight_gradient(const Conv2dCase& conv, const void* x, const void* dy, void* dweight) {
  const Conv2dCase wide = wide_case(conv);
  const Widened wide_x(conv.dtype, x, conv.x_numel());
  const Widened wide_dy(conv.dtype, dy, conv.y_numel());
  const int64_t count = conv.weight_numel();
  const Buffer<float> wide_dweight(count);
  conv_cpu.choose(wide, Conv2dPass::weight_gradient)
      .weight_gradient(wide, wide_x.data(), wide_dy.data(), wide_dweight.data());
  convert(count, conv.dtype, dweight, DType::float32, wide_dweight.data());
}

}  // namespace

constinit const Conv2dImplementation conv2d_through_float{.name = "through_float",
                                                          .supports = supports,
                                                          .forward = forward,
                                                          .input_gradient = input_gradient,
                                                          .weight_gradient = weight_gradient};

}  // namespace norma::kernels

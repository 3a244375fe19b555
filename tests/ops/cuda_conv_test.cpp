#include "core/factory.h"
#include "ops/conv/conv.h"
#include "ops/conv/kernels.h"
#include "ops/cuda_results.h"
#include "ops/shape/join.h"
#include "ops/shape/view.h"

#include <string>

// Our own kernels for depthwise convolutions on CUDA beside the CPU's in float64.

using namespace norma;
using namespace norma::test;

namespace {

struct DepthwiseTest {
  Sizes x;
  int64_t kernel;
  int64_t stride;
  Pair padding;

  [[nodiscard]] std::string name() const {
    return to_string(x) + ", " + std::to_string(kernel) + " by " + std::to_string(kernel) + ", stride " +
           std::to_string(stride);
  }
};

constexpr DType kDTypes[] = {DType::float32, DType::bfloat16, DType::float16, DType::float64};
constexpr MemoryFormat kFormats[] = {MemoryFormat::contiguous, MemoryFormat::channels_last};

/// The same numbers behind one element that is none of them, so that no vector is aligned.
Tensor behind_one(const Tensor& x) {
  const bool channels_last = x.suggest_memory_format() == MemoryFormat::channels_last;
  const Tensor in_order = channels_last ? permute(x, {0, 2, 3, 1}) : x;
  const Tensor row = cat({full({1}, 7.0, {.dtype = x.dtype(), .device = x.device()}), reshape(in_order, {-1})}, 0);
  const Tensor view = reshape(narrow(row, 0, 1, x.numel()), in_order.sizes());
  return channels_last ? permute(view, {0, 3, 1, 2}) : view;
}

/// y and the gradients of x, weight and bias, from numbers of `dtype`, in the same or in float64.
Tensors conv_results(const DepthwiseTest& test, Device device, DType dtype, MemoryFormat format,
                     bool in_float64 = false, bool unaligned = false) {
  const int64_t channels = test.x[1];
  const auto there = [&](const Tensor& values, MemoryFormat order) {
    const Tensor result =
        to_device(copy_of(rounded(values, dtype), order, in_float64 ? DType::float64 : dtype), device).detach();
    return unaligned && result.sizes().size() == 4 ? behind_one(result).detach() : result;
  };
  const Tensor x = there(random_tensor(test.x, 1), format).set_requires_grad();
  const Tensor weight =
      there(random_tensor({channels, 1, test.kernel, test.kernel}, 2), MemoryFormat::contiguous).set_requires_grad();
  const Tensor bias = there(random_tensor({channels}, 3), MemoryFormat::contiguous).set_requires_grad();
  const Tensor y = conv2d(x, weight, bias, {.stride = test.stride, .padding = test.padding, .groups = channels});
  const Tensors gradients = grad({y}, {x, weight, bias}, {there(random_tensor(y.sizes(), 4), format)});
  return {y, gradients[0], gradients[1], gradients[2]};
}

void compare(const DepthwiseTest& test, DType dtype, bool unaligned = false) {
  // Results are rounded to 16 bits once; float32 adds up to some thousand products.
  const double tolerance = dtype == DType::float64    ? 1e-13
                           : dtype == DType::float32  ? 2e-6
                           : dtype == DType::bfloat16 ? 0x1.02p-8
                                                      : 0x1.02p-11;
  const Tensors expected = on_cpu(conv_results(test, kCpu, dtype, MemoryFormat::contiguous, /* in_float64= */ true));
  for (const MemoryFormat format : kFormats) {
    for (const Device device : cuda_devices()) {
      const Tensors got = on_cpu(conv_results(test, device, dtype, format, /* in_float64= */ false, unaligned));
      for (size_t i = 0; i < got.size(); ++i) {
        const double difference = relative_difference(got[i], expected[i]);
        CHECK_MESSAGE(difference <= tolerance, test.name(), " ", to_string(dtype), " ", to_string(format), ", result ",
                      i, ": ", difference);
      }
    }
  }
}

kernels::Conv2dCase depthwise_case() {
  return {.n = 2, .c = 6, .h = 9, .w = 8, .o = 6, .kh = 3, .kw = 3, .oh = 7, .ow = 6, .groups = 6};
}

}  // namespace

TEST_CASE("cuda depthwise convolutions: every kernel, stride, dtype and memory format") {
  const DefaultDeviceGuard guard(kCpu);
  // One channel and some that fill no vector, whole vectors, more than a slab; strips that end early; one pixel.
  for (const Sizes& x : {Sizes{2, 1, 9, 8}, Sizes{3, 8, 7, 15}, Sizes{1, 35, 6, 5}, Sizes{2, 136, 2, 3}}) {
    for (const int64_t kernel : {3, 5, 7}) {
      for (const int64_t stride : {1, 2}) {
        for (const DType dtype : kDTypes) {
          compare({x, kernel, stride, kernel / 2}, dtype);
        }
      }
    }
  }
}

TEST_CASE("cuda depthwise convolutions: no padding, unequal paddings and more than the kernel reaches") {
  const DefaultDeviceGuard guard(kCpu);
  for (const Pair& padding : {Pair(0), Pair(1, 4), Pair(6, 2), Pair(9, 8)}) {
    for (const int64_t kernel : {3, 7}) {
      for (const int64_t stride : {1, 2}) {
        compare({{2, 4, 10, 13}, kernel, stride, padding}, DType::float32);
      }
    }
  }
  compare({{3, 4, 1, 1}, 7, 1, 3}, DType::float32);
  compare({{3, 4, 1, 1}, 5, 2, 2}, DType::float32);
}

TEST_CASE("cuda depthwise convolutions: planes of several tiles, and sums of many parts") {
  const DefaultDeviceGuard guard(kCpu);
  for (const Sizes& x : {Sizes{1, 3, 75, 131}, Sizes{1, 2, 260, 3}, Sizes{70, 4, 7, 7}, Sizes{9, 1, 20, 90}}) {
    for (const int64_t stride : {1, 2}) {
      compare({x, 7, stride, 3}, DType::float32);
      compare({x, 3, stride, 1}, DType::bfloat16);
    }
    compare({x, 5, 2, 2}, DType::float64);
  }
  // Channels that leave a block several tiles, one after the other in the same shared memory.
  compare({{2, 200, 20, 50}, 3, 1, 1}, DType::float32);
}

TEST_CASE("cuda depthwise convolutions: operands that no vector may be loaded from") {
  const DefaultDeviceGuard guard(kCpu);
  for (const DType dtype : kDTypes) {
    compare({{2, 16, 9, 10}, 7, 1, 3}, dtype, /* unaligned= */ true);
    compare({{2, 16, 9, 10}, 3, 2, 1}, dtype, /* unaligned= */ true);
  }
}

TEST_CASE("cuda depthwise convolutions: the same bits each time, in any order of threads") {
  const DefaultDeviceGuard guard(kCpu);
  for (const DepthwiseTest& test : {DepthwiseTest{{5, 8, 19, 23}, 7, 1, 3}, DepthwiseTest{{2, 5, 30, 70}, 3, 2, 1}}) {
    for (const MemoryFormat format : kFormats) {
      for (const DType dtype : {DType::float32, DType::bfloat16}) {
        check_any_order(test.name(), [&](Device device) { return conv_results(test, device, dtype, format); });
      }
    }
  }
}

TEST_CASE("cuda depthwise convolutions: which cases are ours") {
  using kernels::Conv2dCase;
  for (const Device device : cuda_devices()) {
    const auto is_ours = [&](auto&& change) {
      Conv2dCase conv = depthwise_case();
      change(conv);
      bool all = true;
      bool none = true;
      for (const auto pass :
           {kernels::Conv2dPass::forward, kernels::Conv2dPass::input_gradient, kernels::Conv2dPass::weight_gradient}) {
        const bool ours = kernels::conv_kernels.table("conv2d", device).choose(conv, pass).name == "depthwise";
        all = all && ours;
        none = none && !ours;
      }
      CHECK(all != none);
      return all;
    };
    for (const DType dtype : kDTypes) {
      for (const bool channels_last : {false, true}) {
        CHECK(is_ours([&](Conv2dCase& conv) {
          conv.dtype = dtype;
          conv.channels_last = channels_last;
        }));
      }
    }
    CHECK(is_ours([](Conv2dCase& conv) { conv.stride_h = conv.stride_w = 2; }));
    CHECK(is_ours([](Conv2dCase& conv) { conv.padding_h = 5; }));
    CHECK_FALSE(is_ours([](Conv2dCase& conv) { conv.groups = 3; }));
    CHECK_FALSE(is_ours([](Conv2dCase& conv) { conv.o = 12; }));
    CHECK_FALSE(is_ours([](Conv2dCase& conv) { conv.kw = 5; }));
    CHECK_FALSE(is_ours([](Conv2dCase& conv) { conv.kh = conv.kw = 4; }));
    CHECK_FALSE(is_ours([](Conv2dCase& conv) { conv.stride_w = 2; }));
    CHECK_FALSE(is_ours([](Conv2dCase& conv) { conv.stride_h = conv.stride_w = 3; }));
    CHECK_FALSE(is_ours([](Conv2dCase& conv) { conv.dilation_w = 2; }));
    CHECK_FALSE(is_ours([](Conv2dCase& conv) { conv.w = int64_t{1} << 30; }));
  }
}

#include "ops/cuda_results.h"
#include "ops/pool/kernels.h"
#include "ops/pool/pool.h"

#include <algorithm>

// CUDA's kernels of pooling beside the CPU's in float64.

using namespace norma;
using namespace norma::test;

namespace {

struct PoolTest {
  std::string name;
  std::function<Tensor(const Tensor& x)> pool;
  bool maximum = false;
};

std::vector<PoolTest> all_pools() {
  const auto largest = [](const Pool2dOptions& options) {
    return [options](const Tensor& x) { return max_pool2d(x, options); };
  };
  const auto average = [](const Pool2dOptions& options) {
    return [options](const Tensor& x) { return avg_pool2d(x, options); };
  };
  const auto adaptive = [](const Pair& output) {
    return [output](const Tensor& x) { return adaptive_avg_pool2d(x, output); };
  };
  return {{"max 3, stride 2, padding 1", largest({.kernel = 3, .stride = 2, .padding = 1}), true},
          {"max 2", largest({.kernel = 2}), true},
          {"max 3 by 2, ceil_mode", largest({.kernel = {3, 2}, .stride = {2, 3}, .ceil_mode = true}), true},
          {"max 3, dilation", largest({.kernel = 3, .stride = 1, .padding = 1, .dilation = 2}), true},
          {"average 3, stride 2, padding 1", average({.kernel = 3, .stride = 2, .padding = 1})},
          {"average without padding",
           average({.kernel = {3, 4}, .stride = 2, .padding = {1, 2}, .ceil_mode = true, .count_include_pad = false})},
          {"average with a divisor", average({.kernel = 2, .divisor_override = 3})},
          {"average of many positions", average({.kernel = {6, 7}, .stride = {1, 2}, .padding = {3, 1}})},
          {"of everything", adaptive(1)},
          {"adaptive 3 by 2", adaptive({3, 2})},
          {"more outputs than inputs", adaptive({11, 17})}};
}

/// y, dx and the gradient of dx's gradient, from numbers of `dtype`, in the same or in float64.
Tensors pool_results(const PoolTest& test, const Tensor& x, MemoryFormat format, Device device, DType dtype,
                     bool in_float64 = false) {
  const auto there = [&](const Tensor& values) {
    return to_device(copy_of(rounded(values, dtype), format, in_float64 ? DType::float64 : dtype), device).detach();
  };
  const Tensor input = there(x).set_requires_grad();
  const Tensor y = test.pool(input);
  Tensor dy = there(random_tensor(y.sizes(), 3)).set_requires_grad();
  const Tensor dx = grad({y}, {input}, {dy}, {.create_graph = true})[0];
  const Tensor again = grad({dx}, {dy}, {there(random_tensor(x.sizes(), 4))})[0];
  return {y, dx, again};
}

/// Values of which many are equal.
Tensor steps(const Sizes& sizes) {
  const Tensor x = random_tensor(sizes, 1);
  change_elements<double>(x, [&](double* elements) {
    for (int64_t i = 0; i < x.numel(); ++i) {
      elements[i] = std::round(2 * elements[i]) / 2;
    }
  });
  return x;
}

constexpr DType kDTypes[] = {DType::float32, DType::bfloat16, DType::float16, DType::float64};
constexpr MemoryFormat kFormats[] = {MemoryFormat::contiguous, MemoryFormat::channels_last};

}  // namespace

TEST_CASE("cuda pooling: every kind of window, dtype and memory format") {
  const DefaultDeviceGuard guard(kCpu);
  for (const Sizes& sizes : {Sizes{2, 3, 9, 8}, Sizes{3, 16, 7, 7}, Sizes{1, 33, 8, 13}, Sizes{1, 8, 40, 31}}) {
    const Tensor x = steps(sizes);
    for (const PoolTest& test : all_pools()) {
      for (const DType dtype : kDTypes) {
        // Maxima have no rounding of their own; y and dx are sums that are rounded once, after those of float32.
        const double tolerance = dtype == DType::float64    ? 1e-14
                                 : dtype == DType::float32  ? 4e-6
                                 : dtype == DType::bfloat16 ? 0x1.01p-8
                                                            : 0x1.01p-11;
        const Tensors expected =
            on_cpu(pool_results(test, x, MemoryFormat::contiguous, kCpu, dtype, /* in_float64= */ true));
        for (const MemoryFormat format : kFormats) {
          for (const Device device : cuda_devices()) {
            const Tensors got = on_cpu(pool_results(test, x, format, device, dtype));
            for (size_t i = 0; i < got.size(); ++i) {
              const bool same_bits = test.maximum && i != 1;
              const double difference = relative_difference(got[i], expected[i]);
              CHECK_MESSAGE(difference <= (same_bits ? 0 : tolerance), test.name, " ", to_string(sizes), " ",
                            to_string(dtype), " ", to_string(format), ", result ", i, ": ", difference);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("cuda pooling: the first of equal maxima, and the first NaN") {
  const DefaultDeviceGuard guard(kCpu);
  const Sizes sizes{1, 8, 6, 6};
  const Tensor x = steps(sizes);
  change_elements<double>(x, [&](double* elements) {
    for (int64_t i = 0; i < x.numel(); ++i) {
      elements[i] = i % 11 == 5 ? NAN : i % 5 == 0 ? -INFINITY : elements[i];
    }
  });
  const PoolTest test = all_pools()[0];
  const Tensors expected = on_cpu(pool_results(test, x, MemoryFormat::contiguous, kCpu, DType::float64));
  for (const MemoryFormat format : kFormats) {
    for (const Device device : cuda_devices()) {
      const Tensors got = on_cpu(pool_results(test, x, format, device, DType::float64));
      CHECK(relative_difference_or_nan(got[0], expected[0]) == 0);
      CHECK(relative_difference(got[1], expected[1]) <= 1e-14);
    }
  }
}

TEST_CASE("cuda pooling: the same bits each time, in any order of threads") {
  const DefaultDeviceGuard guard(kCpu);
  for (const PoolTest& test : all_pools()) {
    for (const MemoryFormat format : kFormats) {
      check_any_order(test.name, [&](Device device) {
        return pool_results(test, steps({2, 16, 9, 8}), format, device, DType::float32);
      });
    }
  }
}

TEST_CASE("pooling: the windows that reach over a position are those whose bounds say so") {
  std::vector<kernels::PoolWindows> all;
  for (const int64_t size : {1, 2, 5, 9, 16}) {
    for (const int64_t count : {1, 2, 3, 7, 20}) {
      all.push_back({.size = size, .count = count});
      for (const int64_t span : {1, 2, 3, 5, 8}) {
        for (const int64_t stride : {1, 2, 3, 9}) {
          for (const int64_t padding : {int64_t{0}, int64_t{1}, span / 2}) {
            if ((count - 1) * stride < size + padding) {  // no window begins behind the image
              all.push_back({.size = size, .count = count, .span = span, .stride = stride, .padding = padding});
            }
          }
        }
      }
    }
  }
  for (const kernels::PoolWindows& windows : all) {
    for (int64_t position = 0; position < windows.size; ++position) {
      const kernels::PoolHolders holders = windows.holders(position);
      for (int64_t i = 0; i < windows.count; ++i) {
        const kernels::PoolWindow window = windows.window(i);
        const bool reaches = window.begin <= position && position < window.end;
        CHECK_MESSAGE(reaches == (holders.first <= i && i < holders.last), "size ", windows.size, " count ",
                      windows.count, " span ", windows.span, " stride ", windows.stride, " padding ", windows.padding);
      }
    }
  }
}

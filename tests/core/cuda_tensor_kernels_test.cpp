#include "core/base_ops.h"
#include "core/by_device.h"
#include "core/device_functions.h"
#include "core/kernels.h"
#include "cuda_devices.h"
#include "error_text.h"
#include "support.h"

// The CUDA kernels of core, beside the CPU's: as cuda-emulated, and on a GPU with NORMA_TEST_GPU=1.

namespace norma::test {
namespace {

constexpr DType kAllDTypes[] = {DType::float32, DType::float64, DType::float16, DType::bfloat16,
                                DType::int64,   DType::int32,   DType::uint8,   DType::boolean};

/// The values of f() with all tensors on the CPU, and on the other devices.
template <class F>
void check_same(F&& f) {
  const DefaultDeviceGuard on_cpu(kCpu);
  const std::vector<double> expected = f(kCpu).template to_vector<double>();
  for (const Device device : cuda_devices()) {
    CAPTURE(to_string(device));
    const DefaultDeviceGuard guard(device);
    const Tensor result = f(device);
    CHECK(result.device() == device);
    CHECK(result.template to_vector<double>() == expected);
  }
}

Tensor values(const Sizes& sizes, DType dtype, Device device) {
  const DefaultDeviceGuard on_cpu(kCpu);
  Tensor numbers = random_tensor(sizes, 3);
  change_elements<double>(numbers, [&](double* elements) {
    for (int64_t i = 0; i < numbers.numel(); ++i) {
      elements[i] = i % 7 == 0 ? 0 : std::fabs(elements[i]) * 30;  // what every dtype holds, with zeros
    }
  });
  return to_device(copy_of(numbers, MemoryFormat::preserve, dtype), device);
}

}  // namespace

TEST_CASE("cuda tensor kernels: copies between all dtypes and layouts") {
  for (const DType from : kAllDTypes) {
    for (const DType to : kAllDTypes) {
      CAPTURE(to_string(from));
      CAPTURE(to_string(to));
      check_same([&](Device device) {
        const Tensor x = values({2, 3, 5, 7}, from, device);
        return copy_of(x, MemoryFormat::channels_last, to);
      });
    }
    for (const Layout layout : kLayouts) {
      check_same([&](Device device) { return copy_of(in_layout(values({2, 3, 5, 7}, from, device), layout)); });
    }
  }
}

TEST_CASE("cuda tensor kernels: layouts that differ in their innermost axis, in whole tiles and parts of some") {
  for (const DType dtype : {DType::uint8, DType::bfloat16, DType::float32, DType::int64}) {
    for (const Sizes& sizes : {Sizes{2, 16, 4, 4}, Sizes{1, 64, 8, 8}, Sizes{3, 70, 13, 11}, Sizes{2, 129, 5, 26}}) {
      CAPTURE(to_string(dtype));
      CAPTURE(to_string(sizes));
      check_same([&](Device device) { return copy_of(values(sizes, dtype, device), MemoryFormat::channels_last); });
      check_same([&](Device device) {
        return copy_of(copy_of(values(sizes, dtype, device), MemoryFormat::channels_last), MemoryFormat::contiguous);
      });
      check_same([&](Device device) {  // rows and columns with gaps behind them
        const Tensor wide = values({sizes[0], sizes[1] + 3, sizes[2], sizes[3] + 1}, dtype, device);
        const Strides& by = wide.strides();
        return copy_of(alias(wide, {sizes[0], sizes[3], sizes[2], sizes[1]}, {by[0], by[3], by[2], by[1]}, by[1]));
      });
    }
  }
}

TEST_CASE("cuda tensor kernels: dense conversions by vectors, what is left over, and views at odd offsets") {
  for (const DType from : {DType::float32, DType::float16, DType::bfloat16, DType::float64}) {
    for (const DType to : {DType::float32, DType::float16, DType::bfloat16}) {
      for (const int64_t count : {1, 7, 8, 9, 515, 70001}) {
        CAPTURE(to_string(from));
        CAPTURE(to_string(to));
        CAPTURE(count);
        check_same([&](Device device) { return copy_of(values({count}, from, device), MemoryFormat::preserve, to); });
        check_same([&](Device device) {
          const Tensor wide = zeros({count + 1}, {.dtype = to, .device = device});
          copy_into(alias(values({count + 3}, from, device), {count}, {1}, 3), alias(wide, {count}, {1}, 1));
          return wide;
        });
      }
    }
  }
}

TEST_CASE("cuda tensor kernels: sums of two, by vectors, at odd offsets and with gaps") {
  for (const DType dtype : {DType::float64, DType::float32, DType::float16, DType::bfloat16}) {
    for (const int64_t count : {1, 7, 8, 9, 515, 70001}) {
      for (const int64_t step : {1, 2}) {
        for (const int64_t offset : {0, 1}) {
          CAPTURE(to_string(dtype));
          CAPTURE(count);
          CAPTURE(step);
          CAPTURE(offset);
          check_same([&](Device device) {
            const Tensor wide = values({step * count + offset}, dtype, device);
            return accumulate(alias(wide, {count}, {step}, offset), values({count}, dtype, device));
          });
        }
      }
    }
  }
}

TEST_CASE("cuda tensor kernels: broadcast, dense runs of any length, more elements than threads") {
  check_same([](Device device) {
    const Tensor to = zeros({4, 3, 5}, {.device = device});
    copy_into(values({3, 1}, DType::float32, device), to);
    return to;
  });
  for (const int64_t count : {1, 3, 4, 8, 1000, 70000}) {
    check_same([&](Device device) { return copy_of(values({count}, DType::bfloat16, device)); });
  }
}

TEST_CASE("cuda tensor kernels: fill, counted and random numbers") {
  for (const DType dtype : kAllDTypes) {
    check_same([&](Device device) { return full({3, 5}, 2.5, {.dtype = dtype, .device = device}); });
  }
  check_same([](Device device) { return arange(1001, DType::int64, device); });
  for (const DType dtype : {DType::float32, DType::float64}) {
    for (const int64_t count : {1, 2, 5, 4099}) {
      check_same([&](Device device) {
        Generator generator(7);
        return rand({count}, {.dtype = dtype, .device = device}, generator);
      });
    }
  }
  check_same([](Device device) {
    Generator generator(7);
    return randint(-5, 1000, {4099}, {.dtype = DType::int64, .device = device}, generator);
  });
}

TEST_CASE("cuda tensor kernels: normal numbers to a unit of the last place") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const auto make = [&](Device device) {
      Generator generator(7);
      return randn({4099}, {.dtype = dtype, .device = device}, generator);
    };
    const Tensor expected = make(kCpu);
    for (const Device device : cuda_devices()) {
      // The device's logarithm and cosine may differ from the host's in the last place.
      const double unit = dtype == DType::float32 ? 0x1p-22 : 0x1p-50;
      CHECK(max_difference(make(device), expected) <= 4 * unit);
    }
  }
}

TEST_CASE("cuda tensor kernels: what no kernel has been written for") {
  const Device cuda{.type = DeviceType::cuda};
  CHECK(error_of([&] { detail::fail_no_kernels("relu", cuda, /* build_has_cuda= */ true); }) ==
        "relu: not yet on CUDA; --device cpu has it");
  CHECK(error_of([&] { detail::fail_no_kernels("relu", cuda, /* build_has_cuda= */ false); }) ==
        "relu: this build of Norma has no CUDA");
}

}  // namespace norma::test

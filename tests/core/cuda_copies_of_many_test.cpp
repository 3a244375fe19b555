#include "core/base_ops.h"
#include "core/copy.h"
#include "core/emulated/launch.h"
#include "core/factory.h"
#include "cuda_devices.h"
#include "error_text.h"
#include "support.h"

// Copies and sums of many tensors at once are those of single ones, on every device.

namespace norma::test {
namespace {

constexpr DType kDTypes[] = {DType::float32,  DType::float64, DType::float16,
                             DType::bfloat16, DType::int64,   DType::uint8};
/// Around a vector and a piece of a kernel.
constexpr int64_t kCounts[] = {1, 5, 8, 4095, 4096, 4097, 9000, 0};

/// Tensors of all counts, half of which begin at no whole vector, and one of rank 4 in channels_last.
Tensors many(DType dtype, uint64_t seed, Device device) {
  Tensors result;
  const auto add = [&](const Sizes& sizes, const Strides& strides, int64_t offset) {
    const DefaultDeviceGuard on_cpu(kCpu);
    const Tensor numbers = random_tensor({sizes.numel() + offset}, seed++);
    change_elements<double>(numbers, [&](double* elements) {
      for (int64_t i = 0; i < numbers.numel(); ++i) {
        elements[i] = std::fabs(elements[i]) * 30;  // what every dtype holds
      }
    });
    const Tensor whole = to_device(copy_of(numbers, MemoryFormat::preserve, dtype), device);
    result.push_back(alias(whole, sizes, strides, offset));
  };
  for (const int64_t count : kCounts) {
    add({count}, {1}, 0);
    add({count}, {1}, 1);
  }
  const Sizes image = {2, 3, 5, 7};
  add(image, strides_for(image, MemoryFormat::channels_last), 0);
  return result;
}

std::vector<std::vector<double>> values_of(const Tensors& xs) {
  std::vector<std::vector<double>> values;
  for (const Tensor& x : xs) {
    values.push_back(x.to_vector<double>());
  }
  return values;
}

std::vector<Device> all_devices() {
  std::vector<Device> devices = cuda_devices();
  devices.push_back(kCpu);
  return devices;
}

}  // namespace

TEST_CASE("cuda copies of many: the values are those of single copies, whatever the dtypes") {
  for (const Device device : all_devices()) {
    CAPTURE(to_string(device));
    const DefaultDeviceGuard guard(device);
    for (const DType from : kDTypes) {
      for (const DType to : kDTypes) {
        CAPTURE(to_string(from));
        CAPTURE(to_string(to));
        const Tensors xs = many(from, 1, device);
        const Tensors single = many(to, 50, device);
        const Tensors together = many(to, 50, device);
        for (size_t i = 0; i < xs.size(); ++i) {
          copy_into(xs[i], single[i]);
        }
        const int64_t version = together[0].version();
        copy_all_into(xs, together);
        CHECK(values_of(together) == values_of(single));
        CHECK(together[0].version() > version);
      }
    }
  }
}

TEST_CASE("cuda copies of many: a factor is rounded in the dtype that is written to") {
  for (const Device device : all_devices()) {
    CAPTURE(to_string(device));
    const DefaultDeviceGuard guard(device);
    const Tensor factor = full({}, 0.1, {.dtype = DType::float64});
    for (const auto& [from, to] : {std::pair(DType::float16, DType::float32),
                                   {DType::bfloat16, DType::float32},
                                   {DType::float32, DType::float32},
                                   {DType::float64, DType::float64}}) {
      CAPTURE(to_string(from));
      const Tensors xs = many(from, 1, device);
      const Tensors ys = many(to, 50, device);
      copy_all_into(xs, ys, factor);
      for (size_t i = 0; i < xs.size(); ++i) {
        std::vector<double> expected = xs[i].to_vector<double>();
        for (double& number : expected) {
          number = to == DType::float32 ? static_cast<float>(number) * 0.1F : number * 0.1;
        }
        CHECK(ys[i].to_vector<double>() == expected);
      }
    }
    CHECK(error_of([&] {
            const Tensor x = ones({2, 3});
            copy_all_into({x}, {alias(ones({3, 2}), {2, 3}, {1, 2}, 0)}, factor);
          }).starts_with("copy_all_into: from: expected dense tensors that lie as those of `to`"));
  }
}

TEST_CASE("cuda copies of many: sums are those of single ones") {
  for (const Device device : all_devices()) {
    CAPTURE(to_string(device));
    const DefaultDeviceGuard guard(device);
    for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
      CAPTURE(to_string(dtype));
      const Tensors xs = many(dtype, 1, device);
      const Tensors single = many(dtype, 50, device);
      const Tensors together = many(dtype, 50, device);
      for (size_t i = 0; i < xs.size(); ++i) {
        accumulate_into(single[i], xs[i]);
      }
      accumulate_all_into(together, xs);
      CHECK(values_of(together) == values_of(single));
    }
  }
}

TEST_CASE("cuda copies of many: they take one launch for tensors that begin at whole vectors, and one for the others") {
  const DefaultDeviceGuard guard(kCudaEmulated);
  const Tensors xs = many(DType::float32, 1, kCudaEmulated);
  const Tensors low = many(DType::bfloat16, 50, kCudaEmulated);
  const int64_t before = emulated::launch_counts().launches;
  copy_all_into(xs, low);
  CHECK(emulated::launch_counts().launches - before == 2);
}

}  // namespace norma::test

#include "core/upload.h"

#include "core/copy.h"
#include "core/device_functions.h"
#include "core/factory.h"
#include "cuda_devices.h"
#include "support.h"

using namespace norma;
using namespace norma::test;

namespace {

Tensor numbers(int64_t count, double first) {
  Tensor x = empty({count}, {.device = kCpu});
  for (int64_t i = 0; i < count; ++i) {
    x.data<float>()[i] = static_cast<float>(first + static_cast<double>(i));
  }
  return x;
}

}  // namespace

TEST_CASE("cuda upload: what arrives is what was sent, while earlier work still reads what came before") {
  const DefaultDeviceGuard guard(kCpu);
  for (const Device device : cuda_devices()) {
    Upload upload(device);
    Tensor next = upload(numbers(1000, 0));
    std::vector<Tensor> sums;
    for (int64_t step = 0; step < 12; ++step) {
      const int64_t count = 1000 + step % 4 * 100;  // blocks must grow
      const Tensor images = std::exchange(next, {});
      // Work that reads the images late: behind a longer one.
      Tensor busy = zeros({1 << 16}, {.device = device});
      copy_into(ones({1 << 16}, {.device = device}), busy);
      sums.push_back(copy_of(images));
      Tensor host = numbers(count, static_cast<double>(step + 1));
      next = upload(host);
      host.data<float>()[0] = -1;  // the caller's again
      CHECK(next.sizes() == Sizes{count});
    }
    for (size_t step = 0; step < sums.size(); ++step) {
      const auto got = to_device(sums[step], kCpu).to_vector<float>();
      CHECK(got.front() == static_cast<float>(step));
      CHECK(got.back() == static_cast<float>(step + got.size() - 1));
    }
  }
}

TEST_CASE("cuda upload: a tensor that is held keeps its values, however many come after it") {
  const DefaultDeviceGuard guard(kCpu);
  for (const Device device : cuda_devices()) {
    Upload upload(device);
    std::vector<Tensor> held;
    for (int i = 0; i < 6; ++i) {
      held.push_back(upload(numbers(64, i)));
    }
    for (size_t i = 0; i < held.size(); ++i) {
      CHECK(to_device(held[i], kCpu).to_vector<float>().front() == static_cast<float>(i));
    }
  }
}

TEST_CASE("upload: formats, views, empty tensors, and devices whose copies are done at once") {
  const DefaultDeviceGuard guard(kCpu);
  std::vector<Device> devices = cuda_devices();
  devices.push_back(kCpu);
  for (const Device device : devices) {
    Upload upload(device);
    const Tensor x = copy_of(random_tensor({2, 3, 4, 5}, 1, DType::float32), MemoryFormat::channels_last);
    const Tensor y = upload(x);
    CHECK(y.strides() == x.strides());
    CHECK(to_device(y, kCpu).to_vector<float>() == x.to_vector<float>());
    CHECK(upload(zeros({0, 3})).sizes() == Sizes{0, 3});
  }
  CHECK(error_of([] { Upload{kCpu}(Tensor()); }).starts_with("upload: x: "));
}

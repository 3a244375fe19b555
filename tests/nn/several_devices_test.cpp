#include "core/allocator.h"
#include "core/copy.h"
#include "core/event.h"
#include "core/factory.h"
#include "core/tape.h"
#include "core/upload.h"
#include "cuda_devices.h"
#include "nn/optim/optimizers.h"
#include "ops/conv/conv.h"
#include "ops/loss/loss.h"
#include "ops/matmul/matmul.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/view.h"
#include "support.h"

// Two GPUs in one process. ctest runs this on two virtual ones; where there is one, there is nothing to see.

using namespace norma;
using namespace norma::test;

namespace {

constexpr Device kSecond{.type = DeviceType::cuda, .index = 1};

bool has_second() {
  return error_of([] { check_available("test", kSecond); }) == "no error";
}

Tensor parameter(const Sizes& sizes, int64_t seed, Device device) {
  return to_device(random_tensor(sizes, seed, DType::float32), device).detach().set_requires_grad();
}

/// A network of a convolution, a norm and a product, trained for some steps with all its tensors on one device.
class Training {
 public:
  explicit Training(Device device)
      : device_(device),
        parameters_{parameter({8, 3, 3, 3}, 1, device), parameter({8}, 2, device), parameter({8}, 3, device),
                    parameter({8 * 6 * 6, 4}, 4, device)},
        optimizer_(groups(), {.lr = 0.05, .momentum = 0.9}) {}

  [[nodiscard]] std::vector<nn::ParameterGroup> groups() const {
    nn::ParameterGroup group;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      group.parameters.emplace_back(std::to_string(i), parameters_[i]);
    }
    return {group};
  }
  void step(int64_t number) {
    optimizer_.zero_grad();
    const Tensor x = to_device(random_tensor({5, 3, 6, 6}, 10 + number, DType::float32), device_);
    const Tensor labels =
        to_device(full({5}, static_cast<double>(number % 4), {.dtype = DType::int64, .device = kCpu}), device_);
    const Tensor h =
        relu(group_norm(conv2d(x, parameters_[0], {}, {.padding = {1, 1}}), 2, parameters_[1], parameters_[2]));
    const Tensor loss = cross_entropy(matmul(view(h, {5, 8 * 6 * 6}), parameters_[3]), labels);
    loss.backward();
    optimizer_.step();
    losses_.push_back(loss.detach());
  }
  [[nodiscard]] std::vector<float> results() const {
    std::vector<float> all;
    for (const Tensors& tensors : {losses_, parameters_}) {
      for (const Tensor& x : tensors) {
        CHECK(x.device() == device_);
        const auto values = to_device(x, kCpu).to_vector<float>();
        all.insert(all.end(), values.begin(), values.end());
      }
    }
    return all;
  }

 private:
  Device device_;
  Tensors parameters_;
  Tensors losses_;
  nn::Sgd optimizer_;
};

}  // namespace

TEST_CASE("several devices: two networks on two GPUs learn in turns what each learns alone, with the same bits") {
  if (!has_second()) {
    std::printf("skipped: no second GPU\n");
    return;
  }
  const DefaultDeviceGuard guard(kCpu);
  Training alone(kCuda);
  for (int64_t i = 0; i < 3; ++i) {
    alone.step(i);
  }
  Training first(kCuda);
  Training second(kSecond);
  for (int64_t i = 0; i < 3; ++i) {
    first.step(i);
    second.step(i);
  }
  CHECK(first.results() == alone.results());
  CHECK(second.results() == alone.results());
}

TEST_CASE("several devices: copies between GPUs, memory and clocks of each, and ops over both") {
  if (!has_second()) {
    return;
  }
  const DefaultDeviceGuard guard(kCpu);
  const Tensor x = random_tensor({300}, 1, DType::float32);
  const Tensor there = to_device(to_device(x, kCuda), kSecond);
  CHECK(there.device() == kSecond);
  CHECK(to_device(there, kCpu).to_vector<float>() == x.to_vector<float>());
  const Tensor back = zeros({300}, {.device = kCuda});
  copy_into(there, back);
  CHECK(to_device(back, kCpu).to_vector<float>() == x.to_vector<float>());

  const int64_t before = allocator(kSecond).statistics().allocated;
  const int64_t before_first = allocator(kCuda).statistics().allocated;
  {
    const Tensor more = zeros({1 << 16}, {.device = kSecond});
    CHECK(allocator(kSecond).statistics().allocated > before);
    CHECK(allocator(kCuda).statistics().allocated == before_first);
  }
  CHECK(allocator(kSecond).statistics().allocated == before);

  Event start(kSecond);
  Event end(kSecond);
  start.record();
  (void)relu(to_device(x, kCuda));  // the first GPU's work lies between
  (void)relu(there);
  end.record();
  CHECK(end.seconds_since(start) > 0);
  synchronize(kSecond);

  CHECK(error_of([&] { add(to_device(x, kCuda), there); }) == "add: b: expected device cuda:0, got cuda:1");
  CHECK(error_of([] { empty({2}, {.device = {.type = DeviceType::cuda, .index = 2}}); }) ==
        "empty: expected a device from cuda:0 to cuda:1, got cuda:2");
}

TEST_CASE("several devices: uploads to each, in turns, while the other one is in use") {
  if (!has_second()) {
    return;
  }
  const DefaultDeviceGuard guard(kCpu);
  Upload first(kCuda);
  Upload second(kSecond);
  for (int64_t i = 0; i < 6; ++i) {  // more than there are blocks
    const Tensor x = random_tensor({300 + i}, 2 * i, DType::float32);
    const Tensor y = random_tensor({200 + i}, 2 * i + 1, DType::float32);
    const Tensor on_second = second(x);
    const Tensor on_first = first(y);
    CHECK(on_second.device() == kSecond);
    CHECK(on_first.device() == kCuda);
    (void)relu(on_first);  // makes the first one current for the next upload to the second
    CHECK(to_device(on_second, kCpu).to_vector<float>() == x.to_vector<float>());
    (void)relu(on_second);
    CHECK(to_device(on_first, kCpu).to_vector<float>() == y.to_vector<float>());
  }
}

#include "core/device.h"

#include "base/error.h"
#include "core/allocator.h"
#include "core/anomaly.h"
#include "core/by_device.h"
#include "core/device_functions.h"
#include "core/kernels.h"
#include "core/op.h"
#include "cuda_devices.h"
#include "error_text.h"
#include "support.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <limits>

namespace norma::test {
namespace {

/// The signal that ended a child process which ran f, or 0 where it ended by itself.
template <class F>
int signal_of_child(F&& f) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int number : {SIGSEGV, SIGBUS}) {
      std::signal(number, SIG_DFL);  // of the sanitizers and of doctest: what is looked for is the signal itself
    }
    f();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

struct Kernels {
  int number;
};

constexpr Kernels kOnCpu{.number = 1};
constexpr Kernels kEmulated{.number = 2};
constexpr ByDevice<Kernels> kKernels{.cpu = &kOnCpu, .cuda = nullptr, .emulated = &kEmulated};

}  // namespace

TEST_CASE("device: names, and what is none") {
  for (const Device device : {kCpu, kCudaEmulated, Device{.type = DeviceType::cuda}, Device{DeviceType::cuda, 3}}) {
    CHECK(device_from_string(to_string(device)) == device);
  }
  CHECK(device_from_string("cuda-emulated") == kCudaEmulated);
  for (const char* name : {"", "gpu", "cuda:", "cuda:-1", "cuda:1x", "cuda-emulated:1", "CPU"}) {
    CHECK(error_of([&] { device_from_string(name); }) ==
          "device: expected cpu, cuda, cuda:N or cuda-emulated, got '" + std::string(name) + "'");
  }
}

TEST_CASE("device: the kernels of each, and none without CUDA") {
  CHECK(kKernels.at("relu", kCpu)->number == 1);
  CHECK(kKernels.at("relu", kCudaEmulated)->number == 2);
  const ByDevice<Kernels> cpu_alone{.cpu = kKernels.cpu, .cuda = nullptr, .emulated = nullptr};
  CHECK(cpu_alone.at("relu", kCpu)->number == 1);
  CHECK(error_of([&] { cpu_alone.at("relu", kCudaEmulated); }) ==
        "relu: this build of Norma has no cuda-emulated; configure it with -DNORMA_EMULATED=ON");
  const Device cuda = device_from_string("cuda:1");
  const std::string none = error_of([&] { kKernels.at("relu", cuda); });
  CHECK_MESSAGE(
      (none == "relu: this build of Norma has no CUDA" || none == "relu: not yet on CUDA; --device cpu has it"), none);
  const auto is_refused = [](const std::string& op, const std::string& text) {
    const std::string other_gpu = op + ": expected a device from cuda:0 to cuda:0, got cuda:1";
    CHECK_MESSAGE((test::is_refusal_of_cuda(text, op) || text == other_gpu), text);
  };
  is_refused("empty", error_of([&] { empty({2}, {.device = cuda}); }));
  is_refused("set_default_device", error_of([&] { set_default_device(cuda); }));
}

TEST_CASE("device: the default one holds while its guard lives") {
  const Device before = default_device();
  {
    const DefaultDeviceGuard guard(kCudaEmulated);
    CHECK(zeros({2}).device() == kCudaEmulated);
    const DefaultDeviceGuard inner(kCpu);
    CHECK(zeros({2}).device() == kCpu);
  }
  CHECK(zeros({2}).device() == before);
}

TEST_CASE("cuda-emulated: the host gets no pointer, and may look at copies") {
  const Tensor x = from_vector<float>({1, 2, 3}, {3}, {.device = kCudaEmulated});
  CHECK(error_of([&] { (void)x.data<float>(); }) == "data: tensor is on cuda-emulated:0; copy it with to(kCpu)");
  CHECK(error_of([&] { (void)x.raw_data(); }) == "data: tensor is on cuda-emulated:0; copy it with to(kCpu)");
  CHECK(error_of([&] { (void)x.data<double>(); }) == "data: expected dtype float64, got float32");
  CHECK(error_of([&] { (void)x.device_pointer<double>(); }) == "data: expected dtype float64, got float32");
  CHECK(x.to_vector<float>() == std::vector<float>{1, 2, 3});
  const Tensor copy = to_device(x, kCpu);
  CHECK(copy.device() == kCpu);
  CHECK(copy.data<float>()[1] == 2);
  CHECK(to_device(x, kCudaEmulated).is_same(x));
}

TEST_CASE("cuda-emulated: memory can be touched while a kernel runs, and at no other time") {
  const Tensor x = full({3}, 7, {.device = kCudaEmulated});
  const volatile float* there = x.device_pointer<float>();
  CHECK(signal_of_child([&] { (void)*there; }) == SIGSEGV);
  {
    const auto kernels = kKernels.at("relu", kCudaEmulated);
    CHECK(*there == 7);
    {
      const auto nested = kKernels.at("relu", kCudaEmulated);
      CHECK(*there == 7);
    }
    CHECK(*there == 7);
    CHECK(signal_of_child([&] { (void)*there; }) == 0);
  }
  CHECK(signal_of_child([&] { (void)*there; }) == SIGSEGV);
}

TEST_CASE("cuda-emulated: what no kernel has written is NaN, before the end of a tensor and behind it") {
  for (int round = 0; round < 2; ++round) {  // the second one gets memory that was used
    const Tensor x = empty({3}, {.device = kCudaEmulated});
    {
      const auto kernels = kKernels.at("relu", kCudaEmulated);
      auto* there = x.device_pointer<float>();
      const Tensor inside = empty({2}, {.device = kCudaEmulated});  // for what kernels hand to each other
      CHECK(std::isnan(inside.device_pointer<float>()[1]));
      for (int i = 0; i < 3; ++i) {
        CHECK(std::isnan(there[i]));
        there[i] = 1;
      }
#if !defined(__SANITIZE_ADDRESS__)  // which ends the program at the first
      for (int i = 3; i < 16; ++i) {
        CHECK(std::isnan(static_cast<volatile float*>(there)[i]));
      }
#endif
    }
    CHECK(x.to_vector<float>() == std::vector<float>{1, 1, 1});
  }
}

TEST_CASE("cuda-emulated: what a kernel throws closes the memory again") {
  const Tensor x = full({3}, 7, {.device = kCudaEmulated});
  const volatile float* there = x.device_pointer<float>();
  CHECK_THROWS_AS(uniform_(full({3}, 1, {.dtype = DType::int64, .device = kCudaEmulated}), 0, 1), Error);
  CHECK(error_of([] {
          const auto kernels = kernels::tensor_kernels.at("uniform_", kCudaEmulated);
          kernels->uniform(DType::int64, nullptr, 0, {}, 0, 1);
        }) == "uniform_: expected dtype float32 or float64, got int64");
  CHECK(signal_of_child([&] { (void)*there; }) == SIGSEGV);
}

TEST_CASE("cuda-emulated: copies there and back keep values, strides and dtype, in every layout") {
  for (const Layout layout : kLayouts) {
    for (const DType dtype : {DType::float64, DType::bfloat16, DType::boolean}) {
      const Tensor x =
          copy_of(in_layout(to_device(random_tensor({2, 3, 4, 5}, 1), kCpu), layout), MemoryFormat::preserve, dtype);
      const Tensor there = to_device(x, kCudaEmulated);
      CHECK(there.device() == kCudaEmulated);
      CHECK(there.strides() == x.strides());
      CHECK(there.dtype() == dtype);
      const Tensor back = to_device(there, kCpu);
      CHECK(back.strides() == x.strides());
      CHECK(max_difference(back, x) == 0);
      Tensor mixed = zeros({2, 3, 4, 5}, {.device = kCpu});
      copy_into(there, mixed);  // another device, dtype and order
      CHECK(max_difference(mixed, copy_of(x, MemoryFormat::contiguous, DType::float32)) == 0);
    }
  }
  CHECK(to_device(zeros({0, 3}, {.device = kCpu}), kCudaEmulated).sizes() == Sizes{0, 3});
  CHECK(to_device(full({}, 3, {.device = kCpu}), kCudaEmulated).item<float>() == 3);
}

TEST_CASE("cuda-emulated: fills and random numbers are those of the CPU") {
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    for (const DType dtype : {DType::float32, DType::float64}) {
      Tensors results;
      for (const Device device : {kCpu, kCudaEmulated}) {
        Generator generator(5);
        const TensorOptions options{.dtype = dtype, .device = device, .format = format};
        Tensor x = rand({2, 3, 4, 5}, options, generator);
        Tensor y = randn({2, 3, 4, 5}, options, generator);
        Tensor z = empty({2, 3, 4, 5}, options);
        truncated_normal_(z, 0.5, 2, -1, 1, generator);
        const Tensor n = randint(-3, 9, {2, 3, 4, 5}, options, generator);
        for (const Tensor& t : {x, y, z, n, full({7}, 0.3, {.dtype = dtype, .device = device})}) {
          CHECK(t.device() == device);
          results.push_back(t);
        }
      }
      const size_t half = results.size() / 2;
      for (size_t i = 0; i < half; ++i) {
        CHECK(max_difference(results[i], results[half + i]) == 0);
      }
    }
  }
  CHECK(arange(5, DType::float32, kCudaEmulated).to_vector<int64_t>() == std::vector<int64_t>{0, 1, 2, 3, 4});
}

TEST_CASE("cuda-emulated: memory is counted, freed and refused like the CPU's") {
  Allocator& memory = allocator(kCudaEmulated);
  const AllocatorStatistics before = memory.statistics();
  {
    const Tensor x = zeros({1000}, {.device = kCudaEmulated});
    CHECK(memory.statistics().allocated >= before.allocated + 4000);
    CHECK(reinterpret_cast<uintptr_t>(x.device_pointer()) % kAlignment == 0);
  }
  CHECK(memory.statistics().allocated == before.allocated);
  memory.empty_cache();
  CHECK_THROWS_AS(memory.allocate(std::numeric_limits<int64_t>::max()), OutOfMemory);
  CHECK(zeros({3}, {.device = kCudaEmulated}).to_vector<float>() == std::vector<float>{0, 0, 0});
}

TEST_CASE("device: a gradient lies where its tensor does") {
  const Tensor x = zeros({2}, {.device = kCudaEmulated}).set_requires_grad();
  const Tensor y = identity(x);
  const Tensor elsewhere = ones({2}, {.device = kCpu});
  CHECK(error_of([&] { backward(y, elsewhere); }) == "backward: gradient: expected device cuda-emulated:0, got cpu");
  CHECK(error_of([&] { (void)grad({y}, {x}, {elsewhere}); }) ==
        "grad: gradient: expected device cuda-emulated:0, got cpu");
  CHECK(error_of([&] { Tensor(x).set_grad(elsewhere); }) ==
        "set_grad: gradient: expected device cuda-emulated:0, got cpu");
  const Tensor hooked = identity(x);
  hooked.register_hook([&](const Tensor&) { return elsewhere; });
  CHECK(error_of([&] { backward(hooked, ones_like(x)); }) ==
        "hook: gradient: expected device cuda-emulated:0, got cpu");
}

TEST_CASE("anomaly: NaN and Inf are found on every device and in every layout, at their place") {
  for (const Device device : {kCpu, kCudaEmulated}) {
    for (const Layout layout : kLayouts) {
      std::vector<double> values(24, 1.0);
      values[17] = std::numeric_limits<double>::infinity();
      const Tensor x =
          in_layout(from_vector(values, {1, 2, 3, 4}, {.dtype = DType::float64, .device = device}), layout);
      const AnomalyGuard anomaly;
      const std::string text = error_of([&] { identity(x.detach().set_requires_grad()); });
      CHECK(text.find("forward gave Inf in output 0") != std::string::npos);
      CHECK(text.find("element 17") != std::string::npos);
    }
  }
}

}  // namespace norma::test

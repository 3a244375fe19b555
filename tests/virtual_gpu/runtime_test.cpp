#include "virtual_gpu/test_device.h"
#include "virtual_gpu/test_kernels.h"

#include <cstdint>
#include <string>

// Errors, memory, events and devices, as CUDA has them.

namespace virtual_gpu::test {
namespace {

using Floats = std::vector<float>;

TEST_CASE("runtime: the last error stays until it is read, whatever succeeds in between") {
  const Fresh fresh;
  int value = 0;
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cudaSetDevice(7) == cudaErrorInvalidDevice);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0) == cudaSuccess);
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("runtime: after a fault every call returns its error, and reading it does not clear it") {
  const Fresh fresh;
  const DeviceFloats device(4);
  const OwnStream stream;
  const PinnedFloats source({1, 2, 3, 4});
  REQUIRE(cudaMemcpyAsync(device.get(), source.get(), 16, cudaMemcpyHostToDevice, stream.get()) == cudaSuccess);
  CHECK(cudaGetLastError() == cudaSuccess);  // it has not run yet
  source.get()[0] = 9;
  CHECK(cudaStreamSynchronize(stream.get()) == cudaErrorLaunchFailure);
  CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
  CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 4) == cudaErrorLaunchFailure);
  CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
}

TEST_CASE("runtime: memory that is used up is an error that passes") {
  const Fresh fresh;
  size_t available = 0;
  size_t total = 0;
  REQUIRE(cudaMemGetInfo(&available, &total) == cudaSuccess);
  CHECK(total == Runtime::get().properties.memory_bytes);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, total + 1) == cudaErrorMemoryAllocation);
  CHECK(memory == nullptr);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  const DeviceFloats device(1000);
  size_t left = 0;
  REQUIRE(cudaMemGetInfo(&left, &total) == cudaSuccess);
  CHECK(left <= available - 4000);
}

TEST_CASE("runtime: what is freed twice, or was never allocated, is refused") {
  const Fresh fresh;
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 64) == cudaSuccess);
  CHECK(cudaFree(static_cast<char*>(memory) + 4) == cudaErrorInvalidValue);
  CHECK(cudaFree(memory) == cudaSuccess);
  CHECK(cudaFree(memory) == cudaErrorInvalidValue);
  CHECK(cudaFree(nullptr) == cudaSuccess);
  REQUIRE(cudaMallocHost(&memory, 64) == cudaSuccess);
  CHECK(cudaFreeHost(static_cast<char*>(memory) + 4) == cudaErrorInvalidValue);
  CHECK(cudaFreeHost(memory) == cudaSuccess);
  CHECK(cudaFreeHost(memory) == cudaErrorInvalidValue);
}

TEST_CASE("runtime: cudaFree waits for all work") {
  const Fresh fresh;
  const DeviceFloats device(4);
  const OwnStream stream;
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 16) == cudaSuccess);
  const PinnedFloats source({1, 2, 3, 4});
  REQUIRE(cudaMemcpyAsync(memory, source.get(), 16, cudaMemcpyHostToDevice, stream.get()) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(device.get(), memory, 16, cudaMemcpyDeviceToDevice, stream.get()) == cudaSuccess);
  REQUIRE(cudaFree(memory) == cudaSuccess);
  source.get()[0] = 9;  // which is legal now
  CHECK(device.values() == Floats{1, 2, 3, 4});
}

TEST_CASE("runtime: registered memory is read late, too") {
  const Fresh fresh;
  const DeviceFloats device(4);
  const OwnStream stream;
  Floats source{1, 2, 3, 4};
  REQUIRE(cudaHostRegister(source.data(), 16, cudaHostRegisterDefault) == cudaSuccess);
  CHECK(cudaHostRegister(source.data(), 16, cudaHostRegisterDefault) == cudaErrorHostMemoryAlreadyRegistered);
  cudaPointerAttributes attributes{};
  REQUIRE(cudaPointerGetAttributes(&attributes, source.data()) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeHost);
  REQUIRE(cudaPointerGetAttributes(&attributes, device.get()) == cudaSuccess);
  CHECK(attributes.type == cudaMemoryTypeDevice);
  REQUIRE(cudaMemcpyAsync(device.get(), source.data(), 16, cudaMemcpyHostToDevice, stream.get()) == cudaSuccess);
  source[3] = 9;
  CHECK(cudaStreamSynchronize(stream.get()) == cudaErrorLaunchFailure);
  Runtime::get().forgive();
  CHECK(cudaHostUnregister(source.data()) == cudaSuccess);
  CHECK(cudaHostUnregister(source.data()) == cudaErrorHostMemoryNotRegistered);
}

TEST_CASE("runtime: events have an order and a time, and handles are checked") {
  const Fresh fresh;
  const DeviceFloats device(Floats(1 << 20));
  const OwnStream stream;
  cudaEvent_t start = nullptr;
  cudaEvent_t end = nullptr;
  cudaEvent_t without_time = nullptr;
  REQUIRE(cudaEventCreate(&start) == cudaSuccess);
  REQUIRE(cudaEventCreate(&end) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&without_time, cudaEventDisableTiming) == cudaSuccess);
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, start, end) == cudaErrorInvalidResourceHandle);  // not recorded
  CHECK(cudaEventQuery(end) == cudaSuccess);
  REQUIRE(cudaEventRecord(start, stream.get()) == cudaSuccess);
  REQUIRE(cudaMemsetAsync(device.get(), 0, 4 << 20, stream.get()) == cudaSuccess);
  REQUIRE(cudaEventRecord(end, stream.get()) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&milliseconds, start, end) == cudaErrorNotReady);
  REQUIRE(cudaEventSynchronize(end) == cudaSuccess);
  CHECK(cudaEventQuery(end) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&milliseconds, start, end) == cudaSuccess);
  CHECK(milliseconds > 0);
  CHECK(milliseconds < 1);
  CHECK(cudaEventRecord(without_time, stream.get()) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&milliseconds, start, without_time) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventDestroy(start) == cudaSuccess);
  CHECK(cudaEventDestroy(start) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventRecord(start, stream.get()) == cudaErrorInvalidResourceHandle);
  CHECK(cudaEventDestroy(end) == cudaSuccess);
  CHECK(cudaEventDestroy(without_time) == cudaSuccess);
}

TEST_CASE("runtime: a program that polls sees its work done") {
  const Fresh fresh;
  const DeviceFloats device(4);
  const OwnStream stream;
  bool was_unready = false;
  for (int i = 0; i < 20; ++i) {
    REQUIRE(cudaMemsetAsync(device.get(), 0, 16, stream.get()) == cudaSuccess);
    cudaError_t state = cudaErrorNotReady;
    int asked = 0;
    while ((state = cudaStreamQuery(stream.get())) == cudaErrorNotReady && asked++ < 1000) {
      was_unready = true;
    }
    REQUIRE(state == cudaSuccess);
  }
  CHECK(was_unready);
}

TEST_CASE("runtime: a stream that was destroyed is no handle any more") {
  const Fresh fresh;
  cudaStream_t stream = nullptr;
  REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
  CHECK(cudaStreamDestroy(stream) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamDestroy(nullptr) == cudaErrorInvalidResourceHandle);
}

TEST_CASE("runtime: a function of the host runs in its stream's order") {
  const Fresh fresh;
  const DeviceFloats device(Floats{1, 2, 3, 4});
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  const OwnStream stream;
  const PinnedFloats target({0, 0, 0, 0});
  REQUIRE(cudaMemcpyAsync(target.get(), device.get(), 16, cudaMemcpyDeviceToHost, stream.get()) == cudaSuccess);
  struct Seen {
    const float* from;
    float value;
  } seen{.from = target.get(), .value = 0};
  const auto look = [](void* data) {
    auto* seen_by_it = static_cast<Seen*>(data);
    seen_by_it->value = seen_by_it->from[3];
  };
  REQUIRE(cudaLaunchHostFunc(stream.get(), look, &seen) == cudaSuccess);
  CHECK(seen.value == 0);
  REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
  CHECK(seen.value == 4);
}

TEST_CASE("runtime: the GPU is the chosen one, and says that it is virtual") {
  const Fresh fresh;
  int count = 0;
  CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 1);
  cudaDeviceProp properties{};
  CHECK(cudaGetDeviceProperties(&properties, 1) == cudaErrorInvalidDevice);
  REQUIRE(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
  CHECK(std::string(properties.name) == "NVIDIA H200 (virtual)");
  CHECK(properties.multiProcessorCount == 132);
  CHECK(properties.sharedMemPerBlockOptin == 232448);
  int value = 0;
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess);
  CHECK(value == 132);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrL2CacheSize, 0) == cudaSuccess);
  CHECK(value == 62914560);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrHostNumaId, 0) == cudaErrorInvalidValue);
}

// preload_test.sh runs it alone, and looks at the exit code of the process.
TEST_CASE("runtime: a fault in work that nobody waits for" * doctest::skip()) {
  float* device = nullptr;
  float* source = nullptr;
  REQUIRE(cudaMalloc(reinterpret_cast<void**>(&device), 16) == cudaSuccess);
  REQUIRE(cudaMallocHost(reinterpret_cast<void**>(&source), 16) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(device, source, 16, cudaMemcpyHostToDevice, nullptr) == cudaSuccess);
  source[0] = 9;
}

TEST_CASE("properties: the known GPUs, and an error that names them") {
  CHECK(properties_of("l4").multiprocessors == 58);
  CHECK(properties_of("rtx4090").minor == 9);
  CHECK(properties_of("h100").memory_bytes < properties_of("h200").memory_bytes);
  CHECK_THROWS_WITH(properties_of("h300"),
                    "NORMA_VIRTUAL_GPU: expected one of emulated, h100, h200, l4, large, rtx4090, got 'h300'");
}

}  // namespace
}  // namespace virtual_gpu::test

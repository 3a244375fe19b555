#include "virtual_gpu/test_device.h"

#include <string>

// When copies read and write the host's memory.

namespace virtual_gpu::test {
namespace {

using Floats = std::vector<float>;
constexpr size_t kBytes = 4 * sizeof(float);

TEST_CASE("copies: pageable memory may be used again as soon as the call returns") {
  const Fresh fresh;
  const DeviceFloats device(4);
  const OwnStream stream;
  Floats source{1, 2, 3, 4};
  REQUIRE(cudaMemcpyAsync(device.get(), source.data(), kBytes, cudaMemcpyHostToDevice, stream.get()) == cudaSuccess);
  source.assign(4, -1);
  REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
  CHECK(device.values() == Floats{1, 2, 3, 4});
}

TEST_CASE("copies: a copy to pageable memory is done when the call returns") {
  const Fresh fresh;
  const DeviceFloats device(Floats{1, 2, 3, 4});
  const OwnStream stream;
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  Floats target(4);
  REQUIRE(cudaMemcpyAsync(target.data(), device.get(), kBytes, cudaMemcpyDeviceToHost, stream.get()) == cudaSuccess);
  CHECK(target == Floats{1, 2, 3, 4});
}

TEST_CASE("copies: pinned memory is read late, and a program that writes to it too early is told") {
  const Fresh fresh;
  const DeviceFloats device(4);
  const OwnStream stream;
  const PinnedFloats source({1, 2, 3, 4});
  REQUIRE(cudaMemcpyAsync(device.get(), source.get(), kBytes, cudaMemcpyHostToDevice, stream.get()) == cudaSuccess);
  SUBCASE("in time") {
    REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
    source.get()[2] = 9;
    CHECK(device.values() == Floats{1, 2, 3, 4});
  }
  SUBCASE("too early") {
    source.get()[2] = 9;
    CHECK(cudaStreamSynchronize(stream.get()) == cudaErrorLaunchFailure);
    CHECK(
        fresh.fault().starts_with("cudaMemcpyAsync of 16 bytes from pinned memory: the program wrote to the source "
                                  "before the copy had been done: byte 10 of 16 (byte 0 of pinned memory of 16 "
                                  "bytes, allocation "));
  }
}

TEST_CASE("copies: pinned memory that is freed too early is named") {
  const Fresh fresh;
  const DeviceFloats device(4);
  const OwnStream stream;
  PinnedFloats source({1, 2, 3, 4});
  REQUIRE(cudaMemcpyAsync(device.get(), source.get(), kBytes, cudaMemcpyHostToDevice, stream.get()) == cudaSuccess);
  source.free();
  CHECK(cudaStreamSynchronize(stream.get()) == cudaErrorLaunchFailure);
  CHECK_MESSAGE(fresh.fault().ends_with(" of the host's, freed before the copy of 16 bytes had been done"),
                fresh.fault());
}

TEST_CASE("copies: pinned memory holds poison until a copy to it is done") {
  const Fresh fresh;
  const DeviceFloats device(Floats{1, 2, 3, 4});
  const OwnStream stream;
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  const PinnedFloats target({5, 6, 7, 8});
  REQUIRE(cudaMemcpyAsync(target.get(), device.get(), kBytes, cudaMemcpyDeviceToHost, stream.get()) == cudaSuccess);
  CHECK(target.get()[0] != 1);
  CHECK(target.get()[0] != 5);
  REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
  CHECK(Floats(target.get(), target.get() + 4) == Floats{1, 2, 3, 4});
}

TEST_CASE("copies: a stream may send on from pinned memory what it has just put there") {
  const Fresh fresh;
  const DeviceFloats from(Floats{1, 2, 3, 4});
  const DeviceFloats to(4);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  const OwnStream stream;
  const PinnedFloats between({0, 0, 0, 0});
  REQUIRE(cudaMemcpyAsync(between.get(), from.get(), kBytes, cudaMemcpyDeviceToHost, stream.get()) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(to.get(), between.get(), kBytes, cudaMemcpyHostToDevice, stream.get()) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(stream.get()) == cudaSuccess);
  CHECK(to.values() == Floats{1, 2, 3, 4});
}

TEST_CASE("copies: what was never written does not reach the host unnoticed") {
  const Fresh fresh;
  const DeviceFloats from(4);
  const DeviceFloats to(4);
  const Floats one{1};
  REQUIRE(cudaMemcpy(from.get() + 1, one.data(), sizeof(float), cudaMemcpyHostToDevice) == cudaSuccess);
  // Within the device it is copied as what it is.
  REQUIRE(cudaMemcpy(to.get(), from.get(), kBytes, cudaMemcpyDeviceToDevice) == cudaSuccess);
  Floats target(4);
  REQUIRE(cudaMemcpy(target.data(), to.get() + 1, sizeof(float), cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(target[0] == 1);
  CHECK(cudaMemcpy(target.data(), to.get() + 1, 2 * sizeof(float), cudaMemcpyDeviceToHost) == cudaErrorLaunchFailure);
  CHECK_MESSAGE(fresh.fault().starts_with("cudaMemcpy of 8 bytes to pageable memory: a copy to the host of 8 bytes "
                                          "reads byte 4, which was never written, of 16 bytes"),
                fresh.fault());
}

TEST_CASE("copies: pointers that are out of bounds, or on the wrong side, are refused") {
  const Fresh fresh;
  const DeviceFloats device(Floats{1, 2, 3, 4});
  Floats host(8);
  const auto refused = [&](void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    CHECK(cudaMemcpy(to, from, bytes, kind) == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);  // it is no fault of the device's
  };
  refused(device.get(), host.data(), kBytes + 4, cudaMemcpyHostToDevice);
  refused(host.data(), device.get() + 1, kBytes, cudaMemcpyDeviceToHost);
  refused(host.data(), host.data() + 4, kBytes, cudaMemcpyDeviceToHost);
  refused(host.data(), device.get(), kBytes, cudaMemcpyHostToDevice);
  const PinnedFloats pinned({1, 2});
  refused(device.get(), pinned.get(), kBytes, cudaMemcpyHostToDevice);
}

TEST_CASE("copies: by default the pointers tell the direction") {
  const Fresh fresh;
  const DeviceFloats device(4);
  const Floats source{1, 2, 3, 4};
  Floats target(4);
  REQUIRE(cudaMemcpy(device.get(), source.data(), kBytes, cudaMemcpyDefault) == cudaSuccess);
  REQUIRE(cudaMemcpy(target.data(), device.get(), kBytes, cudaMemcpyDefault) == cudaSuccess);
  CHECK(target == source);
}

TEST_CASE("copies: memory that a free did not wait for is named when a copy needs it") {
  const Fresh fresh;
  const OwnStream stream;
  float* memory = nullptr;
  REQUIRE(cudaMallocAsync(reinterpret_cast<void**>(&memory), kBytes, stream.get()) == cudaSuccess);
  const PinnedFloats source({1, 2, 3, 4});
  REQUIRE(cudaFreeAsync(memory, stream.get()) == cudaSuccess);
  REQUIRE(cudaMemcpyAsync(memory, source.get(), kBytes, cudaMemcpyHostToDevice, stream.get()) == cudaSuccess);
  CHECK(cudaStreamSynchronize(stream.get()) == cudaErrorIllegalAddress);
  CHECK_MESSAGE(fresh.fault().find("freed") != std::string::npos, fresh.fault());
}

}  // namespace
}  // namespace virtual_gpu::test

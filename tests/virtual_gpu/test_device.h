#pragma once

#include "virtual_gpu/runtime.h"

#include <doctest/doctest.h>

#include <vector>

// What the tests of CUDA's functions share.

namespace virtual_gpu::test {

/// Forgets the faults and errors of a test case, before and after it.
class Fresh {
 public:
  Fresh() { reset(); }
  ~Fresh() { reset(); }

  /// The text of the fault since.
  [[nodiscard]] static const std::string& fault() { return Runtime::get().fault(); }

 private:
  static void reset() {
    Runtime::get().streams.finish_all();
    Runtime::get().forgive();
  }
};

/// Memory of the device, by cudaMalloc.
class DeviceFloats {
 public:
  explicit DeviceFloats(size_t count) : count_(count) {
    REQUIRE(cudaMalloc(reinterpret_cast<void**>(&data_), count * sizeof(float)) == cudaSuccess);
  }
  explicit DeviceFloats(const std::vector<float>& values) : DeviceFloats(values.size()) {
    REQUIRE(cudaMemcpy(data_, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice) == cudaSuccess);
  }
  ~DeviceFloats() { cudaFree(data_); }
  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;

  [[nodiscard]] float* get() const { return data_; }
  /// Its values, once all work of the default stream is done.
  [[nodiscard]] std::vector<float> values() const {
    std::vector<float> result(count_);
    CHECK(cudaMemcpy(result.data(), data_, count_ * sizeof(float), cudaMemcpyDeviceToHost) == cudaSuccess);
    return result;
  }

 private:
  size_t count_;
  float* data_ = nullptr;
};

/// Pinned memory of the host.
class PinnedFloats {
 public:
  explicit PinnedFloats(const std::vector<float>& values) {
    REQUIRE(cudaMallocHost(reinterpret_cast<void**>(&data_), values.size() * sizeof(float)) == cudaSuccess);
    std::copy(values.begin(), values.end(), data_);
  }
  ~PinnedFloats() { free(); }
  PinnedFloats(const PinnedFloats&) = delete;
  PinnedFloats& operator=(const PinnedFloats&) = delete;

  [[nodiscard]] float* get() const { return data_; }
  void free() {
    cudaFreeHost(data_);
    data_ = nullptr;
  }

 private:
  float* data_ = nullptr;
};

/// A stream that does not wait for the default one.
class OwnStream {
 public:
  OwnStream() { REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess); }
  ~OwnStream() { cudaStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;

  [[nodiscard]] cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace virtual_gpu::test

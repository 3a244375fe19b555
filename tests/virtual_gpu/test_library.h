#pragma once

#include "virtual_gpu/device.h"
#include "virtual_gpu/numbers.h"
#include "virtual_gpu/runtime.h"

#include <cuda_runtime_api.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

// What the tests of cuDNN's and cuBLASLt's stand-ins share.

namespace virtual_gpu::test {

/// The text of the fault that the streams find in their work, "" for none; forgets it.
inline std::string fault_of_work() {
  Runtime& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  runtime.streams.finish_all();
  std::string text = runtime.fault();
  runtime.forgive();
  return text;
}

/// Numbers in the device's memory, by cudaMalloc.
class DeviceNumbers {
 public:
  /// Numbers that were never written. `skipped` bytes lie before the first one.
  DeviceNumbers(NumberType type, size_t count, size_t skipped = 0) : type_(type), count_(count) {
    REQUIRE(cudaMalloc(reinterpret_cast<void**>(&begin_), skipped + bytes()) == cudaSuccess);
    data_ = begin_ + skipped;
  }
  DeviceNumbers(NumberType type, const std::vector<double>& values, size_t skipped = 0)
      : DeviceNumbers(type, values.size(), skipped) {
    std::vector<std::byte> stored(bytes());
    for (size_t i = 0; i < values.size(); ++i) {
      store(type, stored.data() + i * width(), values[i]);
    }
    REQUIRE(cudaMemcpy(data_, stored.data(), stored.size(), cudaMemcpyHostToDevice) == cudaSuccess);
  }
  ~DeviceNumbers() { free(); }
  DeviceNumbers(const DeviceNumbers&) = delete;
  DeviceNumbers& operator=(const DeviceNumbers&) = delete;

  [[nodiscard]] std::byte* get() const { return data_; }
  [[nodiscard]] uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }
  [[nodiscard]] NumberType type() const { return type_; }
  [[nodiscard]] size_t bytes() const { return count_ * width(); }
  /// Its values, once all work is done.
  [[nodiscard]] std::vector<double> values() const {
    std::vector<std::byte> stored(bytes());
    CHECK(fault_of_work().empty());
    CHECK(cudaMemcpy(stored.data(), data_, stored.size(), cudaMemcpyDeviceToHost) == cudaSuccess);
    std::vector<double> result;
    for (size_t i = 0; i < count_; ++i) {
      result.push_back(load(type_, stored.data() + i * width()));
    }
    return result;
  }
  /// How many of its bytes count as written.
  [[nodiscard]] size_t written_bytes() const {
    const Allocation& allocation = *device_memory().find(address());
    size_t count = 0;
    for (size_t i = 0; i < bytes(); ++i) {
      count += allocation.written[address() - allocation.begin + i];
    }
    return count;
  }
  void free() { cudaFree(std::exchange(begin_, nullptr)); }

 private:
  [[nodiscard]] size_t width() const { return static_cast<size_t>(bytes_of(type_)); }

  NumberType type_;
  size_t count_;
  std::byte* begin_ = nullptr;
  std::byte* data_ = nullptr;
};

/// Numbers of few digits, whose products every type of these tests holds exactly; none is 0.
inline std::vector<double> some_numbers(size_t count, uint64_t seed) {
  std::vector<double> values;
  for (size_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    const auto part = static_cast<int64_t>(seed >> 33) % 8;
    values.push_back((seed >> 60) % 2 == 0 ? 0.125 * static_cast<double>(part + 1)
                                           : -0.125 * static_cast<double>(part + 1));
  }
  return values;
}

/// Numbers with more digits than TF32 has.
inline std::vector<double> long_numbers(size_t count, uint64_t seed) {
  std::vector<double> values = some_numbers(count, seed);
  for (size_t i = 0; i < count; ++i) {
    values[i] = rounded(NumberType::kFloat32, values[i] * (1 + 1e-3 * static_cast<double>(i % 97)));
  }
  return values;
}

}  // namespace virtual_gpu::test

#pragma once

#include "core/allocator.h"
#include "core/device.h"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace norma {

/// A block of memory that tensors share. Counts the in-place changes made through any of them.
class Storage {
 public:
  Storage(size_t bytes, Device device);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }
  [[nodiscard]] Device device() const { return device_; }

  [[nodiscard]] int64_t version() const { return version_; }
  void bump_version() { ++version_; }

 private:
  void* data_;
  size_t bytes_;
  Device device_;
  std::atomic<int64_t> version_ = 0;
};

}  // namespace norma

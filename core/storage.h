#pragma once

#include "core/allocator.h"
#include "core/device.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace norma {

/// What a library made of a block of memory, say weights in an order of its own.
class DerivedData {
 public:
  DerivedData() = default;
  virtual ~DerivedData() = default;
  DerivedData(const DerivedData&) = delete;
  DerivedData& operator=(const DerivedData&) = delete;
};

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

  /// The T that belongs to this version of the memory, empty at first. It goes when the version changes, at the latest
  /// when it is asked for then; a pointer that is still held stays valid. May be called from any thread.
  template <class T>
  std::shared_ptr<T> derived() {
    const std::lock_guard lock(derived_mutex_);
    auto current = derived_version_ == version() ? std::dynamic_pointer_cast<T>(derived_) : nullptr;
    if (current == nullptr) {
      derived_version_ = version();
      derived_ = current = std::make_shared<T>();
    }
    return current;
  }

 private:
  void* data_;
  size_t bytes_;
  Device device_;
  std::atomic<int64_t> version_ = 0;
  std::mutex derived_mutex_;
  int64_t derived_version_ = -1;
  std::shared_ptr<DerivedData> derived_;
};

}  // namespace norma

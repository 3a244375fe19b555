#pragma once

#include "base/not_copied.h"
#include "core/allocator.h"
#include "core/device.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace norma {

/// Data that a library derived from a block of memory, such as weights in an order of its own.
class DerivedData : NotCopied {
 public:
  virtual ~DerivedData() = default;
};

/// A block of memory that tensors share. Counts the in-place changes made through any of them.
class Storage : NotCopied {
 public:
  Storage(size_t bytes, Device device);
  /// Memory of another owner. The destructor calls `release`, which must not be empty, and frees nothing itself.
  Storage(void* data, size_t bytes, Device device, std::function<void()> release);
  ~Storage();

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] size_t bytes() const { return bytes_; }
  [[nodiscard]] Device device() const { return device_; }

  [[nodiscard]] int64_t version() const { return version_; }
  void bump_version() { ++version_; }

  /// The number of a new family (TensorImpl::family), for a tensor that shares this memory but not its history
  /// (detach()).
  uint64_t new_family() { return ++families_; }
  /// Notes that the current version comes from a recorded change made through a tensor of this family.
  void note_recorded_change(uint64_t family);
  /// The version after the last such change; -1 if there was none.
  [[nodiscard]] int64_t recorded_version(uint64_t family) const {
    return has_recorded_changes_ ? find_recorded_version(family) : -1;
  }

  /// Until end_sharing(), others that count no version may write to this memory: NumPy, or another framework.
  void begin_sharing() { ++sharers_; }
  void end_sharing();
  /// A number that only this content of the memory has; none while others may write to it.
  [[nodiscard]] std::optional<int64_t> content() const;

  /// The T that belongs to this content of the memory; at first it is T(). Only one is kept: a call after a change, or
  /// for another T, replaces it; none is kept while others may write to the memory. A pointer that is still held stays
  /// valid. Any thread may call this.
  template <class T>
  std::shared_ptr<T> derived() {
    const std::optional<int64_t> now = content();
    if (!now) {
      return std::make_shared<T>();
    }
    const std::lock_guard lock(mutex_);
    auto current = derived_content_ == now ? std::dynamic_pointer_cast<T>(derived_) : nullptr;
    if (current == nullptr) {
      derived_content_ = now;
      derived_ = current = std::make_shared<T>();
    }
    return current;
  }

 private:
  [[nodiscard]] int64_t find_recorded_version(uint64_t family) const;

  void* data_;
  size_t bytes_;
  Device device_;
  std::function<void()> release_;  // none: data_ is the allocator's
  std::atomic<int64_t> version_ = 0;
  std::atomic<int64_t> sharers_ = 0;
  std::atomic<int64_t> ended_sharings_ = 0;
  std::atomic<uint64_t> families_ = 0;
  std::atomic<bool> has_recorded_changes_ = false;
  mutable std::mutex mutex_;  // for the members below
  std::vector<std::pair<uint64_t, int64_t>> recorded_versions_;
  std::optional<int64_t> derived_content_;
  std::shared_ptr<DerivedData> derived_;
};

}  // namespace norma

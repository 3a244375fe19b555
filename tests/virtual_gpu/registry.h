#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace virtual_gpu {

/// The objects that a library lent to the program. The program holds a number in place of a pointer. It is never used
/// again, so that a destroyed object is known as such.
template <class T>
class Registry {
 public:
  template <class Pointer>
  Pointer create(T value) {
    const std::lock_guard lock(mutex_);
    const uintptr_t key = kFirst + created_++ * kStep;
    objects_[key] = std::make_unique<T>(std::move(value));
    return reinterpret_cast<Pointer>(key);
  }
  /// nullptr for what is not there, or no longer.
  T* find(const void* pointer) const {
    const std::lock_guard lock(mutex_);
    const auto found = objects_.find(reinterpret_cast<uintptr_t>(pointer));
    return found == objects_.end() ? nullptr : found->second.get();
  }
  void destroy(const void* pointer) {
    const std::lock_guard lock(mutex_);
    objects_.erase(reinterpret_cast<uintptr_t>(pointer));
  }
  /// "null", "one that was destroyed", "one that never was"
  const char* describe(const void* pointer) const {
    if (pointer == nullptr) {
      return "null";
    }
    const std::lock_guard lock(mutex_);
    const auto key = reinterpret_cast<uintptr_t>(pointer);
    return key >= kFirst && key < kFirst + created_ * kStep ? "one that was destroyed" : "one that never was";
  }

 private:
  /// Low numbers are no addresses, so that a program that looks behind one is stopped.
  static constexpr uintptr_t kFirst = 0x1000;
  static constexpr uintptr_t kStep = 0x10;

  mutable std::mutex mutex_;
  std::map<uintptr_t, std::unique_ptr<T>> objects_;
  uintptr_t created_ = 0;
};

}  // namespace virtual_gpu

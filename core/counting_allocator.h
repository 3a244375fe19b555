#pragma once

#include "core/allocator.h"

#include <algorithm>
#include <mutex>

namespace norma {

/// The counts that the allocators of all devices keep, and the lock that guards them.
class CountingAllocator : public Allocator {
 public:
  void reset_peak() final {
    const std::lock_guard lock(mutex_);
    statistics_.peak_allocated = statistics_.allocated;
    statistics_.peak_reserved = statistics_.reserved;
  }

  [[nodiscard]] AllocatorStatistics statistics() const final {
    const std::lock_guard lock(mutex_);
    return statistics_;
  }

 protected:
  // The caller holds the lock.

  /// A block was handed out.
  void count_allocated(size_t bytes) {
    ++statistics_.allocations;
    statistics_.allocated += static_cast<int64_t>(bytes);
    statistics_.peak_allocated = std::max(statistics_.peak_allocated, statistics_.allocated);
  }
  /// Memory came from the system.
  void count_reserved(size_t bytes) {
    statistics_.reserved += static_cast<int64_t>(bytes);
    statistics_.peak_reserved = std::max(statistics_.peak_reserved, statistics_.reserved);
  }

  mutable std::mutex mutex_;
  AllocatorStatistics statistics_;
};

}  // namespace norma

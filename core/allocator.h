#pragma once

#include "base/error.h"
#include "core/device.h"

#include <cstddef>
#include <cstdint>

namespace norma {

/// Every block starts at a multiple of this many bytes: one cache line, one AVX-512 register.
inline constexpr size_t kAlignment = 64;

/// Bytes and calls. Peaks count from the start of the program or the last reset_peak().
struct AllocatorStatistics {
  int64_t allocated = 0;           ///< in use by storages now
  int64_t reserved = 0;            ///< taken from the system: in use plus cached
  int64_t peak_allocated = 0;      ///< highest `allocated`
  int64_t peak_reserved = 0;       ///< highest `reserved`
  int64_t allocations = 0;         ///< calls served
  int64_t system_allocations = 0;  ///< calls that had to ask the system
};

/// The system has no memory left.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// Keeps freed blocks and hands them out again, since fresh pages cost more than the loop that fills them.
/// All functions may be called from any thread.
class Allocator {
 public:
  virtual ~Allocator() = default;

  /// Returns at least `bytes` of uninitialized memory, aligned to kAlignment; nullptr for 0 bytes. If memory is short,
  /// it gives its cached blocks back to the system and tries once more. Throws OutOfMemory if that fails, too.
  virtual void* allocate(size_t bytes) = 0;
  virtual void deallocate(void* pointer) = 0;
  /// Gives every cached block back to the system.
  virtual void empty_cache() = 0;
  virtual void reset_peak() = 0;
  [[nodiscard]] virtual AllocatorStatistics statistics() const = 0;
};

/// The allocator of a device. Throws Error when this build cannot use the device.
Allocator& allocator(Device device);

}  // namespace norma

#pragma once

#include "base/error.h"
#include "base/not_copied.h"
#include "core/allocator.h"
#include "core/device.h"

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>

namespace norma::cuda {

/// Memory of the device for one call of a library. The next kernels of the stream may get it, and run after this call.
class Workspace : NotCopied {
 public:
  Workspace(int64_t bytes, Device device)
      : memory_(&allocator(device)), data_(bytes == 0 ? nullptr : memory_->allocate(static_cast<size_t>(bytes))) {}
  ~Workspace() {
    if (data_ != nullptr) {
      memory_->deallocate(data_);
    }
  }

  /// Null for 0 bytes.
  [[nodiscard]] void* data() const { return data_; }

 private:
  Allocator* memory_;
  void* data_;
};

/// Returns allocate(plan.workspace_bytes). Where that throws OutOfMemory, `plan` becomes smaller(most_bytes), the best
/// plan that wants at most so many bytes, one less than before. If smaller() returns none, OutOfMemory goes on.
template <class Plan, class Smaller, class Allocate>
auto allocate_workspace(Plan& plan, Smaller&& smaller, Allocate&& allocate) {
  for (;;) {
    try {
      return allocate(plan.workspace_bytes);
    } catch (const OutOfMemory&) {
      std::optional<Plan> next;
      if (plan.workspace_bytes > 0) {
        next = smaller(plan.workspace_bytes - 1);
      }
      if (!next) {
        throw;
      }
      plan = std::move(*next);
    }
  }
}

/// The alignment that all these pointers have, 16 bytes at most: a view may begin anywhere.
inline int64_t alignment_of(std::initializer_list<const void*> pointers) {
  uintptr_t bits = 16;
  for (const void* pointer : pointers) {
    bits |= reinterpret_cast<uintptr_t>(pointer);
  }
  return int64_t{1} << std::countr_zero(bits);
}

}  // namespace norma::cuda

#pragma once

#include "core/counting_allocator.h"
#include "core/cuda/caching_allocator.h"

#include <cstddef>
#include <unordered_map>

namespace norma::cuda {

/// Gives each block memory of its own, as large as was asked for, and gives it back when it is freed. It is slower than
/// CachingAllocator. In exchange, compute-sanitizer and the virtual GPU see what reads or writes beyond a tensor, after
/// its end, or before anything was written to it.
class SeparateBlocks final : public CountingAllocator {
 public:
  explicit SeparateBlocks(DeviceMemory& memory) : memory_(&memory) {}

  void* allocate(size_t bytes) override;
  /// Throws no error of the device: tensors are freed by destructors, also after a fault of a kernel, and whoever uses
  /// the device next is told of the fault.
  void deallocate(void* pointer) override;
  void empty_cache() override {}

 private:
  DeviceMemory* memory_;
  std::unordered_map<void*, size_t> sizes_;
};

}  // namespace norma::cuda

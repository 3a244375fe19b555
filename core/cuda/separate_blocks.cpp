#include "core/cuda/separate_blocks.h"

#include <fmt/format.h>

namespace norma::cuda {

void* SeparateBlocks::allocate(size_t bytes) {
  if (bytes == 0) {
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  void* pointer = memory_->take(bytes);
  if (pointer == nullptr) {
    throw OutOfMemory(fmt::format("allocator: expected room for {} bytes, got none: tensors hold {} bytes, and {}",
                                  bytes, statistics_.allocated, memory_->text()));
  }
  sizes_.emplace(pointer, bytes);
  ++statistics_.system_allocations;
  count_allocated(bytes);
  count_reserved(bytes);
  return pointer;
}

void SeparateBlocks::deallocate(void* pointer) {
  if (pointer == nullptr) {
    return;
  }
  const std::lock_guard lock(mutex_);
  const auto block = sizes_.find(pointer);
  check(block != sizes_.end(), "allocator", "pointer: expected that of a block in use, got another");
  statistics_.allocated -= static_cast<int64_t>(block->second);
  statistics_.reserved -= static_cast<int64_t>(block->second);
  sizes_.erase(block);
  try {
    memory_->give_back(pointer);
  } catch (const Error&) {
    // After a fault the device takes nothing back.
  }
}

}  // namespace norma::cuda

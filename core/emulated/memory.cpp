#include "core/emulated/memory.h"

#include "core/counting_allocator.h"
#include "core/cpu/arena.h"
#include "core/device_functions.h"
#include "core/memory_text.h"

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>

namespace norma::emulated {
namespace {

/// Cuts all blocks from one arena, whose pages are accessible only while an Access lives.
class GuardedAllocator final : public CountingAllocator {
 public:
  GuardedAllocator() { arena_.protect(true); }

  void* allocate(size_t bytes) override {
    if (bytes == 0) {
      return nullptr;
    }
    const std::lock_guard lock(mutex_);
    const size_t size = (std::min(bytes, arena_.capacity()) + kAlignment - 1) / kAlignment * kAlignment;
    void* pointer = bytes <= arena_.capacity() ? arena_.allocate(size) : nullptr;
    if (pointer == nullptr) {
      throw OutOfMemory("allocator: " + no_room_text(bytes, static_cast<size_t>(statistics_.allocated)));
    }
    sizes_.emplace(pointer, size);
    count_allocated(size);
    note_reserved();
    ASAN_POISON_MEMORY_REGION(pointer, size);
    ASAN_UNPOISON_MEMORY_REGION(pointer, bytes);
    return pointer;
  }

  void deallocate(void* pointer) override {
    if (pointer == nullptr) {
      return;
    }
    const std::lock_guard lock(mutex_);
    const auto block = sizes_.find(pointer);
    statistics_.allocated -= static_cast<int64_t>(block->second);
    ASAN_POISON_MEMORY_REGION(pointer, block->second);
    arena_.deallocate(pointer, block->second);
    sizes_.erase(block);
  }

  void empty_cache() override {
    const std::lock_guard lock(mutex_);
    arena_.release_free_pages();
    note_reserved();
  }

  void open() {
    const std::lock_guard lock(mutex_);
    if (open_++ == 0) {
      arena_.protect(false);
    }
  }

  void close() {
    const std::lock_guard lock(mutex_);
    if (--open_ == 0) {
      arena_.protect(true);
    }
  }

 private:
  void note_reserved() {
    const auto reserved = static_cast<int64_t>(arena_.reserved());
    statistics_.system_allocations += reserved > statistics_.reserved ? 1 : 0;
    statistics_.reserved = reserved;
    statistics_.peak_reserved = std::max(statistics_.peak_reserved, reserved);
  }

  Arena arena_{physical_memory()};
  int open_ = 0;  // how many Access live
  std::unordered_map<void*, size_t> sizes_;
};

GuardedAllocator& guarded_allocator() {
  // Never destroyed: storages of static lifetime may outlive any static object.
  static auto* const instance = new GuardedAllocator;
  return *instance;
}

Allocator& allocator_of_device(int) {
  return guarded_allocator();
}

}  // namespace

Access::Access() {
  guarded_allocator().open();
}
Access::~Access() {
  guarded_allocator().close();
}

}  // namespace norma::emulated

namespace norma {
constinit const DeviceFunctions emulated_functions{
    .allocator = emulated::allocator_of_device, .from_host = copy_host_memory, .to_host = copy_host_memory};
}

#include "core/emulated/memory.h"

#include "core/counting_allocator.h"
#include "core/cpu/arena.h"
#include "core/cpu/host_memory.h"
#include "core/device_functions.h"

#include <sanitizer/asan_interface.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace norma::emulated {
namespace {

/// Bytes after each block. They hold NaN, so that a kernel which reads past a tensor shows.
constexpr size_t kFence = kAlignment;
/// The most bytes of a new block that hold NaN until a kernel writes them. To fill more would be slow.
constexpr size_t kMarked = size_t{1} << 20;

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
    void* pointer = bytes <= arena_.capacity() ? arena_.allocate(size + kFence) : nullptr;
    if (pointer == nullptr) {
      throw OutOfMemory("allocator: " + no_room_text(bytes, static_cast<size_t>(statistics_.allocated)));
    }
    sizes_.emplace(pointer, Sizes{.asked = bytes, .given = size});
    count_allocated(size);
    note_reserved();
    const Part block{static_cast<std::byte*>(pointer), bytes, size + kFence};
    if (open_ > 0) {
      mark(block);
    } else {
      unmarked_.push_back(block);
    }
    return pointer;
  }

  void deallocate(void* pointer) override {
    if (pointer == nullptr) {
      return;
    }
    const std::lock_guard lock(mutex_);
    const auto block = sizes_.find(pointer);
    const size_t size = block->second.given;
    statistics_.allocated -= static_cast<int64_t>(size);
    ASAN_POISON_MEMORY_REGION(pointer, size + kFence);
    arena_.deallocate(pointer, size + kFence);
    std::erase_if(unmarked_, [&](const Part& other) { return other.memory == pointer; });
    sizes_.erase(block);
  }

  void empty_cache() override {
    const std::lock_guard lock(mutex_);
    arena_.release_free_pages();
    note_reserved();
  }

  std::vector<Block> blocks_in_order() {
    std::vector<Block> blocks;
    const std::lock_guard lock(mutex_);
    for (const auto& [pointer, size] : sizes_) {
      const auto* const begin = static_cast<const std::byte*>(pointer);
      blocks.push_back({.begin = begin, .bytes = size.asked, .end = begin + size.given + kFence});
    }
    std::sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) { return a.begin < b.begin; });
    return blocks;
  }

  void open() {
    const std::lock_guard lock(mutex_);
    if (open_++ == 0) {
      arena_.protect(false);
      std::for_each(unmarked_.begin(), unmarked_.end(), mark);
      unmarked_.clear();
    }
  }

  void close() {
    const std::lock_guard lock(mutex_);
    if (--open_ == 0) {
      arena_.protect(true);
    }
  }

 private:
  struct Sizes {
    size_t asked;
    size_t given;  ///< rounded up, without the fence
  };
  struct Part {
    std::byte* memory;
    size_t bytes;  ///< the bytes asked for
    size_t size;   ///< with the fence
  };

  /// Fills a block with NaN. Memory must be accessible.
  static void mark(const Part& block) {
    ASAN_UNPOISON_MEMORY_REGION(block.memory, block.size);
    constexpr int kNan = 0xFF;  // each byte of it, in every floating dtype
    std::memset(block.memory, kNan, std::min(block.bytes, kMarked));
    std::memset(block.memory + block.bytes, kNan, block.size - block.bytes);
    ASAN_POISON_MEMORY_REGION(block.memory + block.bytes, block.size - block.bytes);
  }

  void note_reserved() {
    const auto reserved = static_cast<int64_t>(arena_.reserved());
    statistics_.system_allocations += reserved > statistics_.reserved ? 1 : 0;
    statistics_.reserved = reserved;
    statistics_.peak_reserved = std::max(statistics_.peak_reserved, reserved);
  }

  Arena arena_{physical_memory()};
  int open_ = 0;                // living Access objects
  std::vector<Part> unmarked_;  // blocks made since memory was last accessible
  std::unordered_map<void*, Sizes> sizes_;
};

GuardedAllocator& guarded_allocator() {
  // Never destroyed: storages of static lifetime may outlive any static object.
  static auto* const instance = new GuardedAllocator;
  return *instance;
}

Allocator& allocator_of_device(int) {
  return guarded_allocator();
}

std::atomic<int64_t> waits;

void copy_to_host(void* to, const void* from, size_t bytes) {
  ++waits;
  copy_host_memory(to, from, bytes);
}

void synchronize() {
  ++waits;
}

}  // namespace

std::vector<Block> blocks_in_order() {
  return guarded_allocator().blocks_in_order();
}

int64_t host_waits() {
  return waits;
}

Access::Access() {
  guarded_allocator().open();
}
Access::~Access() {
  guarded_allocator().close();
}

}  // namespace norma::emulated

namespace norma {
constinit const DeviceFunctions emulated_functions{.allocator = emulated::allocator_of_device,
                                                   .from_host = copy_host_memory,
                                                   .to_host = emulated::copy_to_host,
                                                   .synchronize = emulated::synchronize,
                                                   .is_far = true};
}

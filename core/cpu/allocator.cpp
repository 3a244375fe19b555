#include "core/counting_allocator.h"
#include "core/cpu/arena.h"
#include "core/cpu/host_memory.h"
#include "core/device_functions.h"

#include <malloc.h>
#include <sanitizer/asan_interface.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

namespace norma {
namespace {

/// Rounds up so that blocks of similar size can serve each other: to a multiple of an eighth of the
/// next lower power of two (at most 12.5 % lost), and of kAlignment.
size_t rounded(size_t bytes) {
  const size_t step = std::max(kAlignment, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

/// Blocks of at least this size come from the arena. Smaller ones are so many, and so alike, that lists by size serve
/// them faster.
constexpr size_t kLargeBlock = size_t{1} << 20U;

size_t rounded_large(size_t bytes) {
  constexpr size_t kPage = 4096;
  return (bytes + kPage - 1) / kPage * kPage;
}

class CachingCpuAllocator final : public CountingAllocator {
 public:
  CachingCpuAllocator() {
#ifdef M_MMAP_THRESHOLD
    if (arena_.capacity() == 0) {
      // By itself the C library raises its threshold with what is freed and keeps large blocks in its heap. The memory
      // of a run that did not fit would then not serve the next one.
      mallopt(M_MMAP_THRESHOLD, kLargeBlock);
    }
#endif
  }

  void* allocate(size_t bytes) override {
    if (bytes == 0) {
      return nullptr;
    }
    const std::lock_guard lock(mutex_);
    if (bytes > PTRDIFF_MAX) {  // rounding up must not begin again at 0
      throw_out_of_memory(bytes);
    }
    void* pointer = bytes >= kLargeBlock ? take_from_arena(rounded_large(bytes)) : nullptr;
    if (pointer == nullptr) {
      const size_t size = rounded(bytes);
      pointer = take_cached(size);
      if (pointer == nullptr) {
        pointer = take_from_system(size);
      }
    }
    count_allocated(sizes_.at(pointer));
    // Lets the address sanitizer see past a cache that never frees; does nothing in other builds.
    ASAN_POISON_MEMORY_REGION(pointer, sizes_.at(pointer));
    ASAN_UNPOISON_MEMORY_REGION(pointer, bytes);
    return pointer;
  }

  void deallocate(void* pointer) override {
    if (pointer == nullptr) {
      return;
    }
    const std::lock_guard lock(mutex_);
    const size_t size = sizes_.at(pointer);
    statistics_.allocated -= static_cast<int64_t>(size);
    ASAN_POISON_MEMORY_REGION(pointer, size);
    if (arena_.owns(pointer)) {
      sizes_.erase(pointer);
      arena_.deallocate(pointer, size);
    } else {
      keep(pointer, size);
    }
  }

  void empty_cache() override {
    const std::lock_guard lock(mutex_);
    release_cached();
  }

 private:
  // If there is no room to note a block, it goes back to the system: destructors come here, and must not throw.
  void keep(void* pointer, size_t size) {
    try {
      cache_[size].push_back(pointer);
    } catch (const std::bad_alloc&) {
      if (const auto noted = cache_.find(size); noted != cache_.end() && noted->second.empty()) {
        cache_.erase(noted);
      }
      give_back(pointer, size);
    }
  }

  void give_back(void* pointer, size_t size) {
    ASAN_UNPOISON_MEMORY_REGION(pointer, size);
    sizes_.erase(pointer);
    std::free(pointer);
    statistics_.reserved -= static_cast<int64_t>(size);
  }

  // The smallest cached block that fits and wastes at most a quarter of itself.
  void* take_cached(size_t size) {
    const auto found = cache_.lower_bound(size);
    if (found == cache_.end() || found->first > size + size / 3) {
      return nullptr;
    }
    void* pointer = found->second.back();
    found->second.pop_back();
    if (found->second.empty()) {
      cache_.erase(found);
    }
    return pointer;
  }

  // Linux promises more memory than it has and ends the process when the pages are written, so this asks first. It
  // looks up the memory left only now and then, as that takes some 50 µs.
  bool system_has(size_t growth) {
    constexpr size_t kBetweenLooks = size_t{256} << 20U;
    if (growth > left_) {
      left_ = std::min(available_memory(), growth + kBetweenLooks);
    }
    if (growth > left_) {
      return false;
    }
    left_ -= growth;
    return true;
  }

  void* take_from_arena(size_t size) {
    if (!system_has(arena_.growth_of(size))) {
      release_cached();
      if (!system_has(arena_.growth_of(size))) {
        throw_out_of_memory(size);
      }
    }
    const size_t before = arena_.reserved();
    void* pointer = arena_.allocate(size);
    if (pointer != nullptr) {
      sizes_.emplace(pointer, size);
      statistics_.system_allocations += arena_.reserved() > before ? 1 : 0;
      count_reserved(arena_.reserved() - before);
    }
    return pointer;
  }

  [[noreturn]] void throw_out_of_memory(size_t size) const {
    throw OutOfMemory("allocator: " + no_room_text(size, static_cast<size_t>(statistics_.allocated)));
  }

  void* take_from_system(size_t size) {
    const auto take = [&] {
      return size <= memory_ && system_has(size) ? std::aligned_alloc(kAlignment, size) : nullptr;
    };
    void* pointer = take();
    if (pointer == nullptr) {
      release_cached();
      pointer = take();
    }
    if (pointer == nullptr) {
      throw_out_of_memory(size);
    }
    sizes_.emplace(pointer, size);
    ++statistics_.system_allocations;
    count_reserved(size);
    return pointer;
  }

  void release_cached() {
    for (const auto& [size, pointers] : cache_) {
      for (void* pointer : pointers) {
        give_back(pointer, size);
      }
    }
    cache_.clear();
    const size_t before = arena_.reserved();
    arena_.release_free_pages();
    statistics_.reserved -= static_cast<int64_t>(before - arena_.reserved());
  }

  const size_t memory_ = physical_memory();
  Arena arena_{memory_};
  size_t left_ = 0;                             // bytes taken to be left, until the next look
  std::map<size_t, std::vector<void*>> cache_;  // free blocks from outside the arena, by size
  std::unordered_map<void*, size_t> sizes_;     // of every block in use, and of those in cache_
};

/// The caching allocator of host memory.
Allocator& cpu_allocator(int) {
  // Never destroyed: storages of static lifetime may outlive any static object.
  static auto* const instance = new CachingCpuAllocator;
  return *instance;
}

}  // namespace

void copy_host_memory(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

constinit const DeviceFunctions cpu_functions{
    .allocator = cpu_allocator, .from_host = copy_host_memory, .to_host = copy_host_memory};

}  // namespace norma

#include "core/cpu/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>

namespace norma {

Arena::Arena(size_t capacity) {
  constexpr size_t kHugePage = size_t{2} << 20U;
  void* addresses =
      mmap(nullptr, capacity + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (addresses == MAP_FAILED) {
    return;
  }
  const auto start = reinterpret_cast<uintptr_t>(addresses);
  base_ = static_cast<std::byte*>(addresses) + ((start + kHugePage - 1) / kHugePage * kHugePage - start);
  capacity_ = capacity;
#ifdef MADV_HUGEPAGE
  // Fewer faults and fewer misses of the address cache; a system without huge pages refuses, which does no harm.
  madvise(base_, capacity_, MADV_HUGEPAGE);
#endif
  insert(0, {.size = capacity_, .used = 0});
}

void Arena::insert(size_t offset, FreeBlock block) {
  free_.emplace(offset, block);
  by_size_.emplace(block.size, offset);
}

Arena::FreeBlock Arena::take(FreeBlocks::iterator place) {
  const FreeBlock block = place->second;
  by_size_.erase({block.size, place->first});
  free_.erase(place);
  return block;
}

void* Arena::allocate(size_t size) {
  const auto fit = by_size_.lower_bound({size, 0});
  if (fit == by_size_.end()) {
    return nullptr;
  }
  const size_t offset = fit->second;
  const FreeBlock block = take(free_.find(offset));
  // The bytes used before are taken to lie at the front, as the first pages written do.
  const size_t again = std::min(size, block.used);
  reserved_ += size - again;
  if (block.size > size) {
    insert(offset + size, {.size = block.size - size, .used = block.used - again});
  }
  return base_ + offset;
}

size_t Arena::growth_of(size_t size) const {
  const auto fit = by_size_.lower_bound({size, 0});
  return fit == by_size_.end() ? 0 : size - std::min(size, free_.at(fit->second).used);
}

void Arena::deallocate(void* pointer, size_t size) {
  auto offset = static_cast<size_t>(static_cast<std::byte*>(pointer) - base_);
  FreeBlock block{.size = size, .used = size};
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + size) {
    const auto after = std::next(next);
    const FreeBlock neighbour = take(next);
    block = {.size = block.size + neighbour.size, .used = block.used + neighbour.used};
    next = after;
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second.size == offset) {
      offset = before->first;
      const FreeBlock neighbour = take(before);
      block = {.size = block.size + neighbour.size, .used = block.used + neighbour.used};
    }
  }
  insert(offset, block);
}

void Arena::release_free_pages() {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (auto& [offset, block] : free_) {
    if (block.used == 0) {
      continue;
    }
    const size_t first = (offset + page - 1) / page * page;
    const size_t last = (offset + block.size) / page * page;
    if (first < last) {
      madvise(base_ + first, last - first, MADV_DONTNEED);
    }
    reserved_ -= block.used;
    block.used = 0;
  }
}

void Arena::protect(bool inaccessible) {
  if (capacity_ != 0 && mprotect(base_, capacity_, inaccessible ? PROT_NONE : PROT_READ | PROT_WRITE) != 0) {
    // Half-open memory would hide the faults that it is there to show.
    std::perror("norma: mprotect");
    std::abort();
  }
}

size_t physical_memory() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace norma

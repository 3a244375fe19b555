#include "virtual_gpu/host_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace virtual_gpu {
namespace {

constexpr int kPoison = 0xA5;

}  // namespace

HostMemory::~HostMemory() {
  for (const Blocks* blocks : {&blocks_, &freed_}) {
    for (const auto& [begin, block] : *blocks) {
      if (block.mapped != 0) {
        munmap(const_cast<std::byte*>(begin), block.mapped);
      }
    }
  }
}

void* HostMemory::allocate(size_t bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t usable = (std::max<size_t>(bytes, 1) + page - 1) / page * page;
  void* memory = mmap(nullptr, usable + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return nullptr;
  }
  if (mprotect(memory, usable, PROT_READ | PROT_WRITE) != 0) {
    munmap(memory, usable + page);
    return nullptr;
  }
  std::memset(memory, kPoison, usable);
  blocks_[static_cast<std::byte*>(memory)] = {
      .bytes = bytes,
      .mapped = usable + page,
      .note = fmt::format("pinned memory of {} bytes, allocation {} of the host's", bytes, ++count_)};
  return memory;
}

bool HostMemory::release(void* memory) {
  const auto found = blocks_.find(static_cast<std::byte*>(memory));
  if (found == blocks_.end() || found->second.mapped == 0) {
    return false;
  }
  // The addresses stay taken, so that no later use of them can go unnoticed.
  (void)mmap(memory, found->second.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  freed_.insert(*found);
  blocks_.erase(found);
  return true;
}

bool HostMemory::pin(void* memory, size_t bytes) {
  auto* const begin = static_cast<std::byte*>(memory);
  if (overlapping(blocks_, {begin, bytes}) != blocks_.end()) {
    return false;
  }
  blocks_[begin] = {.bytes = bytes, .mapped = 0, .note = fmt::format("registered memory of {} bytes", bytes)};
  return true;
}

bool HostMemory::unpin(void* memory) {
  const auto found = blocks_.find(static_cast<std::byte*>(memory));
  if (found == blocks_.end() || found->second.mapped != 0) {
    return false;
  }
  blocks_.erase(found);
  return true;
}

HostMemory::Blocks::const_iterator HostMemory::overlapping(const Blocks& blocks, const HostRange& range) {
  auto next = blocks.lower_bound(range.end());
  while (next != blocks.begin()) {
    --next;
    if (range.overlaps({next->first, std::max<size_t>(next->second.bytes, 1)})) {
      return next;
    }
    if (next->first + next->second.bytes <= range.begin) {
      break;
    }
  }
  return blocks.end();
}

HostMemory::Place HostMemory::place_of(const HostRange& range) const {
  const auto block = overlapping(blocks_, range);
  if (block != blocks_.end()) {
    return range.begin >= block->first && range.end() <= block->first + block->second.bytes ? Place::kPinned
                                                                                            : Place::kPartlyPinned;
  }
  return overlapping(freed_, range) != freed_.end() ? Place::kFreed : Place::kPageable;
}

std::string HostMemory::describe(const std::byte* at) const {
  for (const Blocks* blocks : {&blocks_, &freed_}) {
    const auto block = overlapping(*blocks, {at, 1});
    if (block != blocks->end()) {
      return fmt::format("byte {} of {}{}", at - block->first, block->second.note, blocks == &freed_ ? ", freed" : "");
    }
  }
  return "pageable memory";
}

void HostMemory::will_use(const HostRange& range, bool writes, Ticket ticket) {
  uses_.push_back({.range = range, .writes = writes, .ticket = ticket});
}

bool HostMemory::is_awaited(const HostRange& range, bool reads_too, const Streams& streams) {
  std::erase_if(uses_, [&](const Use& use) { return streams.is_done(use.ticket); });
  return std::any_of(uses_.begin(), uses_.end(),
                     [&](const Use& use) { return (use.writes || reads_too) && use.range.overlaps(range); });
}

}  // namespace virtual_gpu

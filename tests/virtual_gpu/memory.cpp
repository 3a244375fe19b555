#include "virtual_gpu/memory.h"

#include "virtual_gpu/races.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>
#include <stdexcept>
#include <utility>

namespace virtual_gpu {

namespace {

constexpr uint64_t kRange = uint64_t{1} << 44;  ///< of addresses that allocations may have in a process's life
constexpr uint64_t kPage = 4096;
constexpr uint64_t kGap = 64 << 10;  ///< between two allocations: what misses one hits none
constexpr uint64_t kPoisoned = 64 << 20;

uint64_t round_up(uint64_t value, uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

/// Pages of zeros, which cost nothing until they are written.
std::byte* map_pages(uint64_t bytes, int protection) {
  void* pages = ::mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) {
    throw std::runtime_error(fmt::format("virtual GPU: the host has no {} bytes of address space left", bytes));
  }
  return static_cast<std::byte*>(pages);
}

}  // namespace

Allocation::Allocation() = default;

Allocation::~Allocation() {
  if (data != nullptr) {
    ::munmap(data, round_up(bytes, kPage));
    ::munmap(written.data(), round_up(bytes, kPage));
  }
}

Memory::Memory(uint64_t capacity)
    : capacity_(capacity),
      range_begin_(reinterpret_cast<uint64_t>(map_pages(kRange, PROT_NONE))),
      range_end_(range_begin_ + kRange),
      next_(range_begin_) {}

Memory::~Memory() {
  ::munmap(reinterpret_cast<void*>(range_begin_), kRange);
}

uint64_t Memory::allocate(uint64_t bytes, int device) {
  const std::scoped_lock lock(mutex_);
  if (bytes == 0 || bytes > capacity_ - used_[device]) {
    return 0;
  }
  const uint64_t begin = round_up(next_, 512) + 256;
  if (begin + bytes + kGap > range_end_) {
    return 0;
  }
  auto allocation = std::make_unique<Allocation>();
  allocation->begin = begin;
  allocation->bytes = bytes;
  allocation->note = fmt::format("{} bytes, allocated by cudaMalloc number {}{}", bytes, ++count_,
                                 device == 0 ? "" : fmt::format(" on device {}", device));
  allocation->device = device;
  const uint64_t pages = round_up(bytes, kPage);
  allocation->data = map_pages(pages, PROT_READ | PROT_WRITE);
  allocation->written = {reinterpret_cast<uint8_t*>(map_pages(pages, PROT_READ | PROT_WRITE)), bytes};
  if (bytes <= kPoisoned) {
    std::memset(allocation->data, 0xff, bytes);
  }
  next_ = begin + bytes + kGap;
  used_[device] += bytes;
  allocations_.emplace(begin, std::move(allocation));
  return begin;
}

bool Memory::release(uint64_t address) {
  const std::scoped_lock lock(mutex_);
  const auto found = allocations_.find(address);
  if (found == allocations_.end()) {
    return false;
  }
  used_[found->second->device] -= found->second->bytes;
  freed_[address] = {found->second->bytes, std::move(found->second->note)};
  allocations_.erase(found);
  return true;
}

Allocation* Memory::find(uint64_t address) const {
  const std::scoped_lock lock(mutex_);
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) {
    return nullptr;
  }
  Allocation* const allocation = std::prev(after)->second.get();
  return address < allocation->end() ? allocation : nullptr;
}

std::string Memory::describe(uint64_t address) const {
  if (address < kPage) {
    return "a null pointer";
  }
  const std::scoped_lock lock(mutex_);
  const auto freed = freed_.upper_bound(address);
  if (freed != freed_.begin()) {
    const auto& [begin, block] = *std::prev(freed);
    if (address < begin + block.bytes) {
      return fmt::format("byte {} of {}, which were freed", address - begin, block.note);
    }
  }
  const auto after = allocations_.upper_bound(address);
  const Allocation* const next = after == allocations_.end() ? nullptr : after->second.get();
  const Allocation* const before = after == allocations_.begin() ? nullptr : std::prev(after)->second.get();
  if (before != nullptr && address < before->end()) {
    return fmt::format("byte {} of {}", address - before->begin, before->note);
  }
  if (before != nullptr && (next == nullptr || address - before->end() <= next->begin - address)) {
    return fmt::format("{} bytes after the end of {}", address - before->end(), before->note);
  }
  if (next != nullptr) {
    return fmt::format("{} bytes before {}", next->begin - address, next->note);
  }
  return "no memory of the device";
}

uint64_t Memory::available(int device) const {
  const std::scoped_lock lock(mutex_);
  const auto used = used_.find(device);
  return capacity_ - (used == used_.end() ? 0 : used->second);
}

}  // namespace virtual_gpu

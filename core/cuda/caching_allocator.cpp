#include "core/cuda/caching_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

namespace norma::cuda {

namespace {

constexpr size_t kMebi = size_t{1} << 20;
constexpr size_t kStep = 512;            // all sizes are multiples of it
constexpr size_t kLargestSmall = kMebi;  // blocks of the small pool
constexpr size_t kSmallSegment = 2 * kMebi;
constexpr size_t kLargeSegment = 20 * kMebi;  // for blocks of less than half of it
constexpr size_t kLargeStep = 2 * kMebi;      // segments of larger blocks are multiples of it
constexpr size_t kLeastLargeRest = kMebi;     // a smaller rest of a large block stays with it

size_t round_up(size_t bytes, size_t step) {
  return (bytes + step - 1) / step * step;
}

std::string mebibytes(int64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / static_cast<double>(kMebi));
}

}  // namespace

bool CachingAllocator::BySize::operator()(const Block* a, const Block* b) const {
  return a->size != b->size ? a->size < b->size : std::less<>()(a->start, b->start);
}

void* CachingAllocator::allocate(size_t bytes) {
  if (bytes == 0) {
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  const bool possible = bytes <= PTRDIFF_MAX;  // rounding up must not begin again at 0
  const size_t size = possible ? round_up(bytes, kStep) : bytes;
  Pool& pool = size <= kLargestSmall ? used_->small : used_->large;
  Block* block = possible ? take_free(pool, size) : nullptr;
  if (block == nullptr && possible) {
    block = new_segment(pool, size);
    if (block == nullptr && used_ == &common_) {
      release_free_segments();
      block = new_segment(pool, size);
    }
  }
  if (block == nullptr) {
    throw OutOfMemory(fmt::format(
        "allocator: expected room for {}, got none: tensors hold {}, {} are kept for later, and {}",
        mebibytes(static_cast<int64_t>(std::min<size_t>(size, PTRDIFF_MAX))), mebibytes(statistics_.allocated),
        mebibytes(statistics_.reserved - statistics_.allocated), memory_->text()));
  }
  split(block, size);
  block->in_use = true;
  count_allocated(block->size);
  return block->start;
}

void CachingAllocator::deallocate(void* pointer) {
  if (pointer == nullptr) {
    return;
  }
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(pointer);
  check(found != blocks_.end() && found->second->in_use, "allocator",
        "pointer: expected that of a block in use, got another");
  Block* block = found->second.get();
  block->in_use = false;
  statistics_.allocated -= static_cast<int64_t>(block->size);
  if (block->before != nullptr && !block->before->in_use) {
    block->pool->free.erase(block->before);
    block = join(block->before, block);
  }
  if (block->behind != nullptr && !block->behind->in_use) {
    block->pool->free.erase(block->behind);
    block = join(block, block->behind);
  }
  block->pool->free.insert(block);
}

void CachingAllocator::empty_cache() {
  const std::lock_guard lock(mutex_);
  if (used_ == &common_) {
    release_free_segments();
  }
}

void CachingAllocator::use(Reserve* reserve) {
  const std::lock_guard lock(mutex_);
  used_ = reserve == nullptr ? &common_ : reserve;
}

void CachingAllocator::dissolve(Reserve& reserve) {
  const std::lock_guard lock(mutex_);
  for (const auto& [start, block] : blocks_) {
    if (block->pool == &reserve.small || block->pool == &reserve.large) {
      block->pool = block->pool->is_small ? &common_.small : &common_.large;
    }
  }
  common_.small.free.merge(reserve.small.free);
  common_.large.free.merge(reserve.large.free);
}

CachingAllocator::Block* CachingAllocator::take_free(Pool& pool, size_t size) {
  Block wanted;
  wanted.size = size;
  const auto found = pool.free.lower_bound(&wanted);
  if (found == pool.free.end()) {
    return nullptr;
  }
  Block* block = *found;
  pool.free.erase(found);
  return block;
}

CachingAllocator::Block* CachingAllocator::new_segment(Pool& pool, size_t size) {
  const size_t bytes = pool.is_small              ? kSmallSegment
                       : size < kLargeSegment / 2 ? kLargeSegment
                                                  : round_up(size, kLargeStep);
  auto* start = static_cast<std::byte*>(memory_->take(bytes));
  if (start == nullptr) {
    return nullptr;
  }
  ++statistics_.system_allocations;
  count_reserved(bytes);
  return add_block(start, bytes, pool);
}

void CachingAllocator::split(Block* block, size_t size) {
  const size_t rest = block->size - size;
  if (rest < (block->pool->is_small ? kStep : kLeastLargeRest)) {
    return;
  }
  Block* behind = add_block(block->start + size, rest, *block->pool);
  behind->before = block;
  behind->behind = block->behind;
  if (behind->behind != nullptr) {
    behind->behind->before = behind;
  }
  block->behind = behind;
  block->size = size;
  block->pool->free.insert(behind);
}

CachingAllocator::Block* CachingAllocator::join(Block* block, Block* behind) {
  block->size += behind->size;
  block->behind = behind->behind;
  if (block->behind != nullptr) {
    block->behind->before = block;
  }
  blocks_.erase(behind->start);
  return block;
}

void CachingAllocator::release_free_segments() {
  for (Pool* pool : {&common_.small, &common_.large}) {
    for (auto i = pool->free.begin(); i != pool->free.end();) {
      Block* block = *i;
      if (block->before != nullptr || block->behind != nullptr) {
        ++i;
        continue;
      }
      memory_->give_back(block->start);
      i = pool->free.erase(i);
      statistics_.reserved -= static_cast<int64_t>(block->size);
      blocks_.erase(block->start);
    }
  }
}

CachingAllocator::Block* CachingAllocator::add_block(std::byte* start, size_t size, Pool& pool) {
  auto block = std::make_unique<Block>();
  block->start = start;
  block->size = size;
  block->pool = &pool;
  return (blocks_[start] = std::move(block)).get();
}

}  // namespace norma::cuda

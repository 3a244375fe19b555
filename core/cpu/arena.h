#pragma once

#include "base/not_copied.h"

#include <cstddef>
#include <map>
#include <set>
#include <utility>

namespace norma {

/// One range of addresses that blocks are cut from. Free neighbours become one block again, so that memory freed in
/// small pieces serves large ones: a backward pass wants its largest blocks when it has freed everything else. Pages
/// come from the system when they are first written. Not thread-safe.
class Arena : NotCopied {
 public:
  /// Takes addresses, not memory, for `capacity` bytes. Where the system refuses, every allocate() returns nullptr.
  explicit Arena(size_t capacity);

  /// The smallest free block that holds `size` bytes (a multiple of kAlignment), the lowest of several; nullptr where
  /// there is none.
  void* allocate(size_t size);
  /// The bytes by which allocate(size) would raise reserved(): pages that the system has yet to give.
  [[nodiscard]] size_t growth_of(size_t size) const;
  /// Takes back a block of allocate(size).
  void deallocate(void* pointer, size_t size);
  [[nodiscard]] bool owns(const void* pointer) const {
    const auto* p = static_cast<const std::byte*>(pointer);
    return p >= base_ && p < base_ + capacity_;
  }
  /// 0 where the system refused the addresses.
  [[nodiscard]] size_t capacity() const { return capacity_; }
  /// Gives the pages of all free blocks back to the system.
  void release_free_pages();
  /// Makes all pages inaccessible, or readable and writable again, as at first.
  void protect(bool inaccessible);
  /// An upper bound of the bytes that were handed out since their pages were last given back.
  [[nodiscard]] size_t reserved() const { return reserved_; }

 private:
  struct FreeBlock {
    size_t size;
    size_t used;  ///< bytes of it that were handed out before: their pages are there
  };
  using FreeBlocks = std::map<size_t, FreeBlock>;  // by offset

  void insert(size_t offset, FreeBlock block);
  FreeBlock take(FreeBlocks::iterator place);

  std::byte* base_ = nullptr;
  size_t capacity_ = 0;
  size_t reserved_ = 0;
  FreeBlocks free_;
  std::set<std::pair<size_t, size_t>> by_size_;  // size, offset
};

/// Bytes of memory this machine has.
size_t physical_memory();

}  // namespace norma

#pragma once

#include "base/not_copied.h"
#include "core/allocator.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace norma::kernels::cpu {

/// Memory of the calling thread for the length of a scope. It is kept for the next scope, so that the steady state asks
/// nobody for memory. Scopes may nest.
class Scratch : NotCopied {
 public:
  Scratch() : block_(arena().block), used_(arena().used) {
    Arena& all = arena();
    if (block_ == 0 && used_ == 0 && all.blocks.size() > 1) {  // one block for all of it from now on
      size_t total = 0;
      for (const Block& block : all.blocks) {
        total += block.bytes;
      }
      all.blocks.clear();
      all.blocks.emplace_back(total);
    }
  }
  ~Scratch() {
    arena().block = block_;
    arena().used = used_;
  }

  /// `count` numbers, uninitialized, on a cache line of their own and followed by room for one more vector.
  template <class T>
  T* take(int64_t count) {
    constexpr size_t kLine = kAlignment;
    const size_t bytes = (static_cast<size_t>(count) * sizeof(T) + kLine - 1) / kLine * kLine + kLine;
    Arena& all = arena();
    if (all.blocks.empty()) {
      all.blocks.emplace_back(std::max(bytes, kLeast));
    }
    while (all.used + bytes > all.blocks[all.block].bytes) {
      if (all.block + 1 == all.blocks.size()) {
        all.blocks.emplace_back(std::max(bytes, 2 * all.blocks.back().bytes));
      }
      ++all.block;
      all.used = 0;
    }
    T* result = reinterpret_cast<T*>(all.blocks[all.block].memory.get() + all.used);
    all.used += bytes;
    return result;
  }
  /// As take(), all 0.
  template <class T>
  T* zeros(int64_t count) {
    T* result = take<T>(count);
    std::fill_n(result, count, T(0));
    return result;
  }

 private:
  static constexpr size_t kLeast = size_t{256} << 10;

  struct Delete {
    void operator()(std::byte* memory) const { ::operator delete (memory, std::align_val_t{kAlignment}); }
  };
  struct Block {
    explicit Block(size_t size)
        : bytes(size), memory(static_cast<std::byte*>(::operator new (size, std::align_val_t{kAlignment}))) {}
    size_t bytes;
    std::unique_ptr<std::byte, Delete> memory;
  };
  struct Arena {
    std::vector<Block> blocks;
    size_t block = 0;  ///< the block in use, with `used` bytes of it
    size_t used = 0;
  };
  static Arena& arena() {
    static thread_local Arena instance;
    return instance;
  }

  size_t block_;
  size_t used_;
};

}  // namespace norma::kernels::cpu

#pragma once

#include "core/counting_allocator.h"

#include <cstddef>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>

namespace norma::cuda {

/// The source of an allocator's memory: cudaMalloc, cudaMallocAsync, or a stand-in in tests. With cudaMalloc both calls
/// are slow, and give_back() waits for all work on the device.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  /// nullptr where there is not enough left.
  virtual void* take(size_t bytes) = 0;
  virtual void give_back(void* pointer) = 0;
  /// The part of the error that describes the device: "the device has 150.0 GB, 1.2 GB of it free".
  [[nodiscard]] virtual std::string text() const = 0;
};

/// Cuts blocks from segments of a device's memory, whose contents it never touches.
///
/// Small blocks come from segments of 2 MiB, large ones from segments of their own size, at least 20 MiB; the two pools
/// share nothing, so that a small block never keeps a large segment. A block is cut from the smallest free piece that
/// holds it; what is freed joins the free pieces beside it. Segments that are wholly free go back with empty_cache(),
/// and when the device has no memory left, before asking once more.
///
/// A block that is freed may be handed out at once: all kernels run in one stream, so those that use it next come after
/// those that used it before.
///
/// The kernels of a graph use the same addresses at each launch, so a graph has a Reserve: pools of its own, whose
/// memory nobody else gets.
class CachingAllocator final : public CountingAllocator {
  struct Block;
  /// Orders free pieces by size, then by address: the first that fits is the smallest.
  struct BySize {
    bool operator()(const Block* a, const Block* b) const;
  };
  struct Pool {
    bool is_small = false;
    std::set<Block*, BySize> free;
  };

 public:
  /// A pair of pools.
  struct Reserve {
    Pool small{.is_small = true, .free = {}};
    Pool large;
  };

  explicit CachingAllocator(DeviceMemory& memory) : memory_(&memory) {}
  /// Keeps its segments: they belong to the memory, which outlives this.
  ~CachingAllocator() override = default;

  void* allocate(size_t bytes) override;
  void deallocate(void* pointer) override;
  void empty_cache() override;

  /// Takes blocks from this reserve, for all threads, until the next call; null: from the common one. With a reserve no
  /// memory goes back to the device meanwhile.
  void use(Reserve* reserve);
  /// Adds the reserve's memory to the common one, blocks in use included.
  void dissolve(Reserve& reserve);

 private:
  /// A piece of a segment. The pieces of one segment are a chain in the order of their addresses.
  struct Block {
    std::byte* start = nullptr;
    size_t size = 0;
    Pool* pool = nullptr;
    bool in_use = false;
    Block* before = nullptr;
    Block* behind = nullptr;
  };

  Block* take_free(Pool& pool, size_t size);
  Block* new_segment(Pool& pool, size_t size);
  void split(Block* block, size_t size);
  Block* join(Block* block, Block* behind);
  void release_free_segments();
  Block* add_block(std::byte* start, size_t size, Pool& pool);

  DeviceMemory* memory_;
  Reserve common_;
  Reserve* used_ = &common_;
  std::unordered_map<void*, std::unique_ptr<Block>> blocks_;  // all, by their start
};

}  // namespace norma::cuda

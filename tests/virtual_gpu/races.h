#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace virtual_gpu {

/// A thread of a launch, among all of its blocks, in 32 bits.
namespace thread_id {
constexpr uint32_t kThreadBits = 11;
constexpr uint32_t kManyThreads = (1U << kThreadBits) - 1;  ///< several threads of one block
constexpr uint32_t kManyBlocks = 0xffffffff;                ///< several blocks

constexpr uint32_t of(uint32_t block, uint32_t thread) {
  return block << kThreadBits | thread;
}
constexpr uint32_t block(uint32_t id) {
  return id >> kThreadBits;
}
constexpr uint32_t thread(uint32_t id) {
  return id & kManyThreads;
}
}  // namespace thread_id

/// Who touched a piece of memory last, and when: the time in the upper half, a thread_id in the lower one.
using Touch = uint64_t;

/// The moment of an access. Times grow with every barrier of the process.
struct Moment {
  uint32_t now = 0;
  uint32_t launch_begin = 0;  ///< what is older belongs to another launch (or block, for shared memory)
  uint32_t last_barrier = 0;  ///< of the block
  uint32_t first_thread = 0;  ///< the thread_id of the warp's first lane
  uint32_t warp_met = 0;      ///< when the lanes of the warp met last
};

/// A race that was found.
struct Race {
  bool found = false;
  bool other_wrote = false;  ///< or read
  uint32_t other = 0;        ///< its thread_id
  int lane = 0;              ///< of the warp whose access came second
};

/// Finds accesses of one piece of memory by two threads, one of which writes, without a barrier between. It keeps the
/// last writer and the last readers of each piece. Pieces have 4 bytes, and fewer where a kernel uses fewer.
class Races {
 public:
  explicit Races(uint64_t bytes) : pages_((bytes + kPageBytes - 1) / kPageBytes) {}

  /// An access of `bytes` at `offset` by one lane. `element` is the size of what it reads or writes at once.
  void touch(uint64_t offset, uint32_t bytes, uint32_t element, int lane, bool write, const Moment& moment, Race& race);
  /// The same for lanes that follow one another.
  struct Lanes {
    int first = 0;
    int count = 32;
  };
  void touch_all(uint64_t offset, uint32_t bytes, uint32_t element, Lanes lanes, bool write, const Moment& moment,
                 Race& race);
  /// The same for lanes that all read one place.
  void read_one(uint64_t offset, uint32_t bytes, uint32_t element, uint32_t mask, const Moment& moment, Race& race);

 private:
  static constexpr uint64_t kPageBytes = 4096;

  struct Page {
    uint32_t shift = 2;  ///< a piece has 2^shift bytes
    uint32_t bytes = 4;
    std::vector<Touch> writes;
    std::vector<Touch> reads;
  };
  Page& page(uint64_t index, uint32_t element) {
    Page* const found = pages_[index].get();
    return found != nullptr && found->bytes <= element ? *found : make_page(index, element);
  }
  Page& make_page(uint64_t index, uint32_t element);

  std::vector<std::unique_ptr<Page>> pages_;
};

/// The next moment of the process.
uint32_t tick();
/// False where NORMA_VIRTUAL_GPU_RACES is 0.
bool races_are_checked();

}  // namespace virtual_gpu

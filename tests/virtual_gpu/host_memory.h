#pragma once

#include "virtual_gpu/streams.h"

#include <cstddef>
#include <map>
#include <string>
#include <vector>

// Memory of the host that CUDA knows: pinned memory, which the device reads and writes by itself, late.

namespace virtual_gpu {

/// Memory of the host that work of a stream reads or writes when its turn comes.
struct HostRange {
  const std::byte* begin = nullptr;
  size_t bytes = 0;

  [[nodiscard]] const std::byte* end() const { return begin + bytes; }
  [[nodiscard]] bool overlaps(const HostRange& other) const { return begin < other.end() && other.begin < end(); }
};

class HostMemory {
 public:
  HostMemory() = default;
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  /// Pinned memory full of poison, with a page behind it that cannot be touched. nullptr where there is none.
  void* allocate(size_t bytes);
  /// No byte of it can be touched from here on. False where `memory` is not what allocate() returned.
  bool release(void* memory);
  /// cudaHostRegister and cudaHostUnregister: memory of the program's own.
  bool pin(void* memory, size_t bytes);
  bool unpin(void* memory);

  enum class Place { kPageable, kPinned, kPartlyPinned, kFreed };
  [[nodiscard]] Place place_of(const HostRange& range) const;
  /// For errors: "pinned memory of 64 bytes, the 3rd that was allocated".
  [[nodiscard]] std::string describe(const std::byte* at) const;

  /// Notes that work of this ticket reads or writes the range when its turn comes.
  void will_use(const HostRange& range, bool writes, Ticket ticket);
  /// Whether unfinished work will write to (or, with `reads_too`, read) some of the range.
  [[nodiscard]] bool is_awaited(const HostRange& range, bool reads_too, const Streams& streams);

 private:
  struct Block {
    size_t bytes = 0;
    size_t mapped = 0;  ///< 0 for registered memory, which is the program's
    std::string note;
  };
  struct Use {
    HostRange range;
    bool writes = false;
    Ticket ticket = 0;
  };
  using Blocks = std::map<const std::byte*, Block>;
  [[nodiscard]] static Blocks::const_iterator overlapping(const Blocks& blocks, const HostRange& range);

  Blocks blocks_;
  Blocks freed_;
  std::vector<Use> uses_;
  int64_t count_ = 0;
};

}  // namespace virtual_gpu

#pragma once

#include "virtual_gpu/launch.h"
#include "virtual_gpu/races.h"
#include "virtual_gpu/warp.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace virtual_gpu {

/// What all blocks of a launch share.
struct LaunchContext {
  const Launch* launch = nullptr;
  const Module::Kernel* kernel = nullptr;
  Memory* memory = nullptr;
  std::vector<std::byte> parameters;
  uint32_t begin = 0;            ///< the moment before its first access
  bool races = true;             ///< whether races are looked for
  bool several_threads = false;  ///< of the host: races between blocks are not looked for
  bool some_blocks = false;      ///< others are left out: what these would have written counts as written
};

/// Memory that an access found, and where the host reads it.
struct Region {
  uint64_t begin = 0;
  uint64_t end = 0;
  std::byte* data = nullptr;
  uint8_t* written = nullptr;  ///< nullptr: all of it counts as written
  Races* races = nullptr;      ///< nullptr: they are not looked for
};

/// One block at a time of a launch, with its warps, its shared memory and its counts. A thread of the host has one.
class Block {
 public:
  explicit Block(const LaunchContext& context);

  /// Runs the block of this number to its end.
  void run(uint64_t number);

  [[nodiscard]] const LaunchContext& context() const { return context_; }
  [[nodiscard]] const Module::Kernel& kernel() const { return *context_.kernel; }
  [[nodiscard]] const std::byte* constants() const { return constants_; }
  [[nodiscard]] Dim3 index() const { return index_; }
  [[nodiscard]] Dim3 thread_index(uint32_t thread) const;
  /// The region of global memory that holds the address, or one of no bytes. `index` is the instruction's, which mostly
  /// meets the same region again.
  const Region& find(uint64_t address, uint32_t index);

  [[nodiscard]] std::byte* shared() { return shared_.data(); }
  [[nodiscard]] uint8_t* shared_written() { return shared_written_.data(); }
  [[nodiscard]] uint64_t shared_bytes() const { return shared_.size(); }
  [[nodiscard]] Races& shared_races() { return shared_races_; }
  [[nodiscard]] std::byte* local(uint32_t thread) { return local_.data() + thread * kernel().local_bytes; }
  [[nodiscard]] uint8_t* local_written(uint32_t thread) {
    return local_written_.data() + thread * kernel().local_bytes;
  }

  /// The moment of an access to global, or to shared memory, by a warp.
  [[nodiscard]] Moment moment(const Warp& warp, bool shared) const;
  /// What happens from here on is later.
  uint32_t pass_time() { return now_ = tick(); }

  Counters counters;

 private:
  void start(uint64_t number);
  void fill_specials(bool of_launch);
  void meet_at_barrier();

  const LaunchContext& context_;
  uint32_t threads_;
  std::vector<Warp> warps_;
  std::unique_ptr<std::byte[]> registers_;
  std::byte* constants_ = nullptr;
  std::vector<std::byte> shared_;
  std::vector<uint8_t> shared_written_;
  Races shared_races_;
  std::vector<std::byte> local_;
  std::vector<uint8_t> local_written_;
  uint32_t number_ = 0;
  uint32_t begin_ = 0;
  uint32_t now_ = 0;
  uint32_t last_barrier_ = 0;
  Dim3 index_;
  bool filled_ = false;  ///< the registers that are the same for all blocks
  std::array<Region, 64> regions_;
};

}  // namespace virtual_gpu

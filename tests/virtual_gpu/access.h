#pragma once

#include "virtual_gpu/block.h"

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

namespace virtual_gpu {

/// The memory of each lane's access, after every check: in bounds, aligned, written, without a race.
struct Access {
  std::array<std::byte*, kLanes> at;
  bool consecutive = false;  ///< all lanes are active, and each begins where the one before ends
  uint32_t partial = 0;      ///< lanes that load bytes of which some were never written
  /// Where it is kept what of them was written: for those lanes, and for all that store undefined bytes.
  std::array<uint8_t*, kLanes> written;
};

/// The addresses of a warp's lanes, and what holds of those that are active.
struct Addresses {
  alignas(64) std::array<uint64_t, kLanes> of;
  uint32_t mask = 0;
  int first_lane = 0;  ///< the first active one
  int lanes = 0;       ///< how many are active
  uint64_t lowest = 0;
  uint64_t highest = 0;
  bool misaligned = false;   ///< one of them
  bool consecutive = false;  ///< active lanes are neighbours, and each begins where the one before ends
  bool equal = false;        ///< all are one address

  [[nodiscard]] uint64_t at(int lane) const { return of[static_cast<size_t>(lane)]; }
  /// Finds out what holds for accesses of `bytes`.
  void examine(uint32_t active, uint64_t bytes);
};

/// Looks up what the lanes of `mask` load or store, and counts it.
void find_memory(Warp& warp, const Instruction& instruction, uint32_t mask, Operand address, bool store,
                 Access& access);

// By space, for addresses that are known to be aligned.
void find_global(Warp& warp, const Instruction& i, const Addresses& addresses, bool store, Access& access);
void find_shared(Warp& warp, const Instruction& i, const Addresses& addresses, bool store, Access& access);

/// Notes that a lane stores, or whether what it loads was written. Throws the fault where none of it was; `text` makes
/// the fault's text.
template <class Text>
void check_written(Warp& warp, const Instruction& i, int lane, uint8_t* written, bool store, Access& access, Text text);

/// Whether all bytes from `written` on have been written: each of them is 1.
inline bool all_written(const uint8_t* written, uint64_t bytes);
/// The first of `bytes` that was never written, or `bytes`.
uint64_t first_unwritten(const uint8_t* written, uint64_t bytes);

/// Throws the race's Fault. `where` names the memory: "4 bytes at 0x…".
[[noreturn]] void throw_race(Warp& warp, const Instruction& i, const Race& race, bool store, const std::string& where);

inline bool all_written(const uint8_t* written, uint64_t bytes) {
  switch (bytes) {
    case 1: return *written != 0;
    case 2: return *reinterpret_cast<const Alias<uint16_t>*>(written) == 0x0101;
    case 4: return *reinterpret_cast<const Alias<uint32_t>*>(written) == 0x01010101;
    case 8: return *reinterpret_cast<const Alias<uint64_t>*>(written) == 0x0101010101010101;
    default: return first_unwritten(written, bytes) == bytes;
  }
}

template <class Text>
void check_written(Warp& warp, const Instruction& i, int lane, uint8_t* written, bool store, Access& access,
                   Text text) {
  const uint64_t bytes = i.access_bytes;
  access.written[static_cast<size_t>(lane)] = written;
  if (store) {
    std::memset(written, 1, bytes);
  } else if (!all_written(written, bytes) && !warp.block().context().some_blocks) {
    if (std::memchr(written, 1, bytes) == nullptr) {
      warp.fault(Fault::Kind::kUninitialized, i, lane, text());
    }
    access.partial |= uint32_t{1} << lane;
  }
}

}  // namespace virtual_gpu

#pragma once

#include "virtual_gpu/block.h"

namespace virtual_gpu {

/// The memory of each lane's access, after every check: in bounds, aligned, written, without a race.
struct Access {
  std::array<std::byte*, kLanes> at;
  bool contiguous = false;  ///< all lanes are active, and each follows the one before
};

/// Looks up what the lanes of `mask` load or store, and counts it.
void find_memory(Warp& warp, const Instruction& instruction, uint32_t mask, Operand address, bool store,
                 Access& access);

}  // namespace virtual_gpu

#include "virtual_gpu/access.h"

#include "virtual_gpu/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace virtual_gpu {

namespace {

void gather(Warp& warp, const Instruction& i, Operand operand, Addresses& addresses) {
  const uint64_t displacement = i.immediate;
  if (i.wide_address) {
    const Alias<uint64_t>* base = warp.in<uint64_t>(operand);
    VIRTUAL_GPU_LANES {
      addresses.of[static_cast<size_t>(lane)] = base[lane] + displacement;
    }
  } else {
    const Alias<uint32_t>* base = warp.in<uint32_t>(operand);
    VIRTUAL_GPU_LANES {
      addresses.of[static_cast<size_t>(lane)] = static_cast<uint32_t>(base[lane] + static_cast<uint32_t>(displacement));
    }
  }
}

[[noreturn]] void misaligned(Warp& warp, const Instruction& i, const Addresses& addresses, Space space) {
  int lane = addresses.first_lane;
  for_lanes(addresses.mask, [&](int each) {
    if (addresses.at(lane) % i.access_bytes == 0) {
      lane = each;
    }
  });
  const uint64_t address = addresses.at(lane);
  std::string what =
      fmt::format("{} bytes at {:#x}, which is not a multiple of {}", i.access_bytes, address, i.access_bytes);
  if (space == Space::kGlobal) {
    what += fmt::format(": {}", warp.block().context().memory->describe(address));
  }
  warp.fault(Fault::Kind::kMisalignedAddress, i, lane, what);
}

/// A generic address lies in a window, or is one of global memory. All lanes must mean the same memory.
Space resolve_generic(Warp& warp, const Instruction& i, uint32_t mask, Addresses& addresses) {
  const auto space_of = [](uint64_t address) {
    return address >= kGlobalsBegin || address < kSharedWindow ? Space::kGlobal
           : address < kLocalWindow                            ? Space::kShared
                                                               : Space::kLocal;
  };
  const Space space = space_of(addresses.at(std::countr_zero(mask)));
  for_lanes(mask, [&](int lane) {
    uint64_t& address = addresses.of[static_cast<size_t>(lane)];
    if (space_of(address) != space) {
      warp.fault(Fault::Kind::kUnsupported, i, lane, "generic addresses of different memories in one warp");
    }
    address -= space == Space::kShared ? kSharedWindow : space == Space::kLocal ? kLocalWindow : 0;
  });
  return space;
}

void find_local(Warp& warp, const Instruction& i, const Addresses& addresses, bool store, Access& access) {
  Block& block = warp.block();
  const uint64_t bytes = i.access_bytes;
  for_lanes(addresses.mask, [&](int lane) {
    const uint64_t offset = addresses.at(lane);
    if (offset + bytes > block.kernel().local_bytes || offset + bytes < offset) {
      warp.fault(Fault::Kind::kIllegalAddress, i, lane,
                 fmt::format("{} bytes at byte {} of {} bytes of local memory", bytes, static_cast<int64_t>(offset),
                             block.kernel().local_bytes));
    }
    const uint32_t thread = warp.first_thread() + static_cast<uint32_t>(lane);
    access.at[static_cast<size_t>(lane)] = block.local(thread) + offset;
    check_written(warp, i, lane, block.local_written(thread) + offset, store, access, [&] {
      return fmt::format("{} bytes at byte {} of local memory, which were never written", bytes, offset);
    });
  });
  block.counters.local_bytes += bytes * static_cast<uint64_t>(addresses.lanes);
}

void find_parameter(Warp& warp, const Instruction& i, const Addresses& addresses, Access& access) {
  const std::vector<std::byte>& parameters = warp.block().context().parameters;
  const bool inside = addresses.highest + i.access_bytes <= parameters.size();
  if (!inside) {
    const int lane = addresses.first_lane;
    warp.fault(Fault::Kind::kIllegalAddress, i, lane,
               fmt::format("{} bytes at byte {} of {} bytes of parameters", i.access_bytes,
                           static_cast<int64_t>(addresses.at(lane)), parameters.size()));
  }
  std::byte* const begin = const_cast<std::byte*>(parameters.data());
  for_lanes(addresses.mask, [&](int lane) { access.at[static_cast<size_t>(lane)] = begin + addresses.at(lane); });
}

}  // namespace

void Addresses::examine(uint32_t active, uint64_t bytes) {
  mask = active;
  first_lane = std::countr_zero(active);
  lanes = std::popcount(active);
  const uint64_t first = at(first_lane);
  const uint64_t origin = first - bytes * static_cast<uint64_t>(first_lane);
  uint64_t differ = 0;
  uint64_t stray = 0;
  uint64_t all_bits = 0;
  uint64_t low = first;
  uint64_t high = first;
  for (uint64_t lane = 0; lane < kLanes; ++lane) {
    const uint64_t address = ((active >> lane) & 1U) != 0 ? of[lane] : first;
    const uint64_t expected = ((active >> lane) & 1U) != 0 ? origin + bytes * lane : first;
    differ |= address ^ first;
    stray |= address ^ expected;
    all_bits |= address;
    low = address < low ? address : low;
    high = address > high ? address : high;
  }
  const uint32_t run = active >> first_lane;
  lowest = low;
  highest = high;
  misaligned = (all_bits & (bytes - 1)) != 0;
  equal = differ == 0;
  consecutive = stray == 0 && (run & (run + 1)) == 0;
}

uint64_t first_unwritten(const uint8_t* written, uint64_t bytes) {
  const void* const hole = std::memchr(written, 0, bytes);
  return hole == nullptr ? bytes : static_cast<uint64_t>(static_cast<const uint8_t*>(hole) - written);
}

void throw_race(Warp& warp, const Instruction& i, const Race& race, bool store, const std::string& where) {
  const uint32_t thread = thread_id::thread(race.other);
  std::string who;
  if (race.other == thread_id::kManyBlocks) {
    who = "threads of several blocks";
  } else if (thread == thread_id::kManyThreads) {
    who = "several threads of the block";
  } else {
    const Dim3 index = warp.block().thread_index(thread);
    who = fmt::format("thread ({}, {}, {})", index.x, index.y, index.z);
    const Dim3 grid = warp.block().context().launch->grid;
    const uint32_t number = thread_id::block(race.other);
    if (i.space == Space::kGlobal) {
      who += fmt::format(" of block ({}, {}, {})", number % grid.x, number / grid.x % grid.y, number / grid.x / grid.y);
    }
  }
  warp.fault(Fault::Kind::kRace, i, race.lane,
             fmt::format("{}: it {} what {} {} without a barrier between", where, store ? "writes" : "reads", who,
                         race.other_wrote ? "wrote" : "read"));
}

void find_memory(Warp& warp, const Instruction& i, uint32_t mask, Operand address, bool store, Access& access) {
  Addresses addresses;
  gather(warp, i, address, addresses);
  const Space space = i.space == Space::kGeneric ? resolve_generic(warp, i, mask, addresses) : i.space;
  addresses.examine(mask, i.access_bytes);
  access.consecutive = false;
  access.partial = 0;
  if (addresses.misaligned) {
    misaligned(warp, i, addresses, space);
  }
  switch (space) {
    case Space::kGlobal: find_global(warp, i, addresses, store, access); break;
    case Space::kShared: find_shared(warp, i, addresses, store, access); break;
    case Space::kLocal: find_local(warp, i, addresses, store, access); break;
    default: find_parameter(warp, i, addresses, access); break;
  }
}

}  // namespace virtual_gpu

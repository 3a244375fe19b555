#include "virtual_gpu/access.h"

#include "virtual_gpu/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace virtual_gpu {

namespace {

struct Addresses {
  alignas(64) std::array<uint64_t, kLanes> of;
};

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

/// Whether lane k's address is the first one and k steps.
bool contiguous(const Addresses& addresses, uint64_t step) {
  uint64_t differences = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    differences |= addresses.of[lane] ^ (addresses.of[0] + step * lane);
  }
  return differences == 0;
}

std::string bytes_at(const Instruction& i, uint64_t address) {
  return fmt::format("{} bytes at {:#x}", i.access_bytes, address);
}

void check_alignment(Warp& warp, const Instruction& i, uint32_t mask, const Addresses& addresses) {
  for_lanes(mask, [&](int lane) {
    const uint64_t address = addresses.of[static_cast<size_t>(lane)];
    if (address % i.access_bytes != 0) {
      warp.fault(Fault::Kind::kMisalignedAddress, i, lane,
                 fmt::format("{}: expected a multiple of {}; it is {}", bytes_at(i, address), i.access_bytes,
                             i.space == Space::kGlobal ? warp.block().context().memory->describe(address)
                                                       : std::string("not")));
    }
  });
}

/// The first byte of `bytes` that was never written, or `bytes`.
uint64_t first_unwritten(const uint8_t* written, uint64_t bytes) {
  const void* const hole = std::memchr(written, 0, bytes);
  return hole == nullptr ? bytes : static_cast<uint64_t>(static_cast<const uint8_t*>(hole) - written);
}

/// Sectors of 32 bytes that the lanes touch.
uint64_t count_sectors(const Addresses& addresses, uint32_t mask, uint64_t bytes) {
  constexpr size_t kSlots = 128;
  std::array<uint64_t, kSlots> slots;
  slots.fill(~uint64_t{0});
  uint64_t count = 0;
  uint64_t last = ~uint64_t{0};
  for_lanes(mask, [&](int lane) {
    const uint64_t address = addresses.of[static_cast<size_t>(lane)];
    for (uint64_t sector = address / 32; sector <= (address + bytes - 1) / 32; ++sector) {
      if (sector == last) {
        continue;
      }
      last = sector;
      size_t slot = sector % kSlots;
      while (slots[slot] != ~uint64_t{0} && slots[slot] != sector) {
        slot = (slot + 1) % kSlots;
      }
      count += slots[slot] != sector ? 1 : 0;
      slots[slot] = sector;
    }
  });
  return count;
}

/// Passes over shared memory that the lanes need. 4 bytes or less a lane: the most different words of one bank. 8 and
/// 16 bytes: half and quarter warps go one after the other.
uint64_t count_wavefronts(const Addresses& addresses, uint32_t mask, uint32_t bytes) {
  const int lanes = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  const uint64_t words = bytes <= 4 ? 1 : bytes / 4;
  uint64_t wavefronts = 0;
  for (int first = 0; first < kLanes; first += lanes) {
    const uint32_t part = mask & (lanes == 32 ? kAllLanes : ((1U << lanes) - 1) << first);
    std::array<std::array<uint64_t, kLanes>, 32> seen;
    std::array<uint8_t, 32> counts{};
    uint8_t most = 0;
    for_lanes(part, [&](int lane) {
      for (uint64_t k = 0; k < words; ++k) {
        const uint64_t word = addresses.of[static_cast<size_t>(lane)] / 4 + k;
        const size_t bank = word % 32;
        uint8_t& count = counts[bank];
        const auto begin = seen[bank].begin();
        if (std::find(begin, begin + count, word) == begin + count) {
          seen[bank][count++] = word;
          most = std::max(most, count);
        }
      }
    });
    wavefronts += most;
  }
  return wavefronts;
}

[[noreturn]] void outside(Warp& warp, const Instruction& i, int lane, uint64_t address) {
  warp.fault(Fault::Kind::kIllegalAddress, i, lane,
             fmt::format("{}: {}", bytes_at(i, address), warp.block().context().memory->describe(address)));
}

void global(Warp& warp, const Instruction& i, uint32_t mask, bool store, const Addresses& addresses, Access& access) {
  Block& block = warp.block();
  const uint64_t bytes = i.access_bytes;
  const uint64_t lanes = static_cast<uint64_t>(std::popcount(mask));
  Counters& counters = block.counters;
  (store ? counters.global_store_requests : counters.global_load_requests) += 1;
  (store ? counters.global_store_bytes : counters.global_load_bytes) += lanes * bytes;
  uint64_t& sectors = store ? counters.global_store_sectors : counters.global_load_sectors;
  if (mask == kAllLanes && contiguous(addresses, bytes)) {
    const uint64_t begin = addresses.of[0];
    const uint64_t end = begin + kLanes * bytes;
    const Region& region = block.find(begin, i.index);
    if (begin >= region.begin && end <= region.end && begin % bytes == 0) {
      const uint64_t offset = begin - region.begin;
      if (region.written != nullptr) {
        if (store) {
          std::memset(region.written + offset, 1, kLanes * bytes);
        } else if (const uint64_t hole = first_unwritten(region.written + offset, kLanes * bytes);
                   hole != kLanes * bytes) {
          warp.fault(
              Fault::Kind::kUninitialised, i, static_cast<int>(hole / bytes),
              fmt::format("{}, of which byte {} was never written: {}", bytes_at(i, begin + hole / bytes * bytes),
                          hole % bytes, block.context().memory->describe(begin + hole)));
        }
      }
      sectors += (end - 1) / 32 - begin / 32 + 1;
      access.contiguous = true;
      for (size_t lane = 0; lane < kLanes; ++lane) {
        access.at[lane] = region.data + offset + lane * bytes;
      }
      return;
    }
  }
  check_alignment(warp, i, mask, addresses);
  for_lanes(mask, [&](int lane) {
    const uint64_t address = addresses.of[static_cast<size_t>(lane)];
    const Region& region = block.find(address, i.index);
    if (address < region.begin || address + bytes > region.end) {
      outside(warp, i, lane, address);
    }
    const uint64_t offset = address - region.begin;
    access.at[static_cast<size_t>(lane)] = region.data + offset;
    if (region.written == nullptr) {
      return;
    }
    if (store) {
      std::memset(region.written + offset, 1, bytes);
    } else if (const uint64_t hole = first_unwritten(region.written + offset, bytes); hole != bytes) {
      warp.fault(Fault::Kind::kUninitialised, i, lane,
                 fmt::format("{}, of which byte {} was never written: {}", bytes_at(i, address), hole,
                             block.context().memory->describe(address + hole)));
    }
  });
  sectors += count_sectors(addresses, mask, bytes);
}

void shared(Warp& warp, const Instruction& i, uint32_t mask, bool store, const Addresses& addresses, Access& access) {
  Block& block = warp.block();
  const uint64_t bytes = i.access_bytes;
  check_alignment(warp, i, mask, addresses);
  for_lanes(mask, [&](int lane) {
    const uint64_t address = addresses.of[static_cast<size_t>(lane)];
    const uint64_t offset = address - kSharedBegin;
    if (address < kSharedBegin || offset + bytes > block.shared_bytes()) {
      warp.fault(Fault::Kind::kIllegalAddress, i, lane,
                 fmt::format("{} bytes at byte {} of {} bytes of shared memory", bytes, static_cast<int64_t>(offset),
                             block.shared_bytes()));
    }
    access.at[static_cast<size_t>(lane)] = block.shared() + offset;
    uint8_t* const written = block.shared_written() + offset;
    if (store) {
      std::memset(written, 1, bytes);
    } else if (const uint64_t hole = first_unwritten(written, bytes); hole != bytes) {
      warp.fault(
          Fault::Kind::kUninitialised, i, lane,
          fmt::format("{} bytes at byte {} of shared memory, of which byte {} was never written", bytes, offset, hole));
    }
  });
  block.counters.shared_requests += 1;
  block.counters.shared_wavefronts += count_wavefronts(addresses, mask, static_cast<uint32_t>(bytes));
}

void local(Warp& warp, const Instruction& i, uint32_t mask, const Addresses& addresses, Access& access) {
  Block& block = warp.block();
  const uint64_t bytes = i.access_bytes;
  check_alignment(warp, i, mask, addresses);
  for_lanes(mask, [&](int lane) {
    const uint64_t offset = addresses.of[static_cast<size_t>(lane)];
    if (offset + bytes > block.kernel().local_bytes) {
      warp.fault(Fault::Kind::kIllegalAddress, i, lane,
                 fmt::format("{} bytes at byte {} of {} bytes of local memory", bytes, static_cast<int64_t>(offset),
                             block.kernel().local_bytes));
    }
    access.at[static_cast<size_t>(lane)] = block.local(warp.first_thread() + static_cast<uint32_t>(lane)) + offset;
  });
  block.counters.local_bytes += bytes * static_cast<uint64_t>(std::popcount(mask));
}

void parameter(Warp& warp, const Instruction& i, uint32_t mask, const Addresses& addresses, Access& access) {
  const std::vector<std::byte>& parameters = warp.block().context().parameters;
  for_lanes(mask, [&](int lane) {
    const uint64_t offset = addresses.of[static_cast<size_t>(lane)];
    if (offset + i.access_bytes > parameters.size()) {
      warp.fault(Fault::Kind::kIllegalAddress, i, lane,
                 fmt::format("{} bytes at byte {} of {} bytes of parameters", i.access_bytes,
                             static_cast<int64_t>(offset), parameters.size()));
    }
    access.at[static_cast<size_t>(lane)] = const_cast<std::byte*>(parameters.data()) + offset;
  });
}

}  // namespace

void find_memory(Warp& warp, const Instruction& i, uint32_t mask, Operand address, bool store, Access& access) {
  Addresses addresses;
  gather(warp, i, address, addresses);
  access.contiguous = false;
  switch (i.space) {
    case Space::kGlobal: global(warp, i, mask, store, addresses, access); break;
    case Space::kShared: shared(warp, i, mask, store, addresses, access); break;
    case Space::kLocal: local(warp, i, mask, addresses, access); break;
    default: parameter(warp, i, mask, addresses, access); break;
  }
}

}  // namespace virtual_gpu

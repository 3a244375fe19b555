#include "virtual_gpu/access.h"
#include "virtual_gpu/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace virtual_gpu {

namespace {

/// Passes over the 32 banks of 4 bytes. Lanes of 4 bytes and less go together: the bank with the most different words
/// decides. Of 8 bytes, half a warp goes at a time, and of 16 bytes a quarter.
uint64_t count_wavefronts(const Addresses& addresses, uint32_t bytes) {
  const int lanes = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  const uint64_t words = bytes <= 4 ? 1 : bytes / 4;
  if (addresses.consecutive || addresses.equal) {
    const int parts = (addresses.first_lane + addresses.lanes - 1) / lanes - addresses.first_lane / lanes + 1;
    return static_cast<uint64_t>(parts);
  }
  uint64_t wavefronts = 0;
  for (int first = 0; first < kLanes; first += lanes) {
    const uint32_t part = addresses.mask & (lanes == 32 ? kAllLanes : ((1U << lanes) - 1) << first);
    std::array<std::array<uint64_t, kLanes>, 32> seen;
    std::array<uint8_t, 32> counts{};
    uint8_t most = 0;
    for_lanes(part, [&](int lane) {
      for (uint64_t k = 0; k < words; ++k) {
        const uint64_t word = addresses.at(lane) / 4 + k;
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

std::string bytes_at(const Instruction& i, uint64_t offset) {
  return fmt::format("{} bytes at byte {} of shared memory", i.access_bytes, offset);
}

}  // namespace

void find_shared(Warp& warp, const Instruction& i, const Addresses& addresses, bool store, Access& access) {
  Block& block = warp.block();
  const uint64_t bytes = i.access_bytes;
  block.counters.shared_requests += 1;
  block.counters.shared_wavefronts += count_wavefronts(addresses, i.access_bytes);
  if (addresses.lowest < kSharedBegin || addresses.highest - kSharedBegin + bytes > block.shared_bytes()) {
    for_lanes(addresses.mask, [&](int lane) {
      const uint64_t offset = addresses.at(lane) - kSharedBegin;
      if (addresses.at(lane) < kSharedBegin || offset + bytes > block.shared_bytes()) {
        warp.fault(Fault::Kind::kIllegalAddress, i, lane,
                   fmt::format("{} bytes at byte {} of {} bytes of shared memory", bytes, static_cast<int64_t>(offset),
                               block.shared_bytes()));
      }
    });
  }
  std::byte* const origin = block.shared() - kSharedBegin;
  VIRTUAL_GPU_LANES {
    access.at[static_cast<size_t>(lane)] = origin + addresses.of[static_cast<size_t>(lane)];
  }
  const bool races = block.context().races;
  const Moment moment = block.moment(warp, true);
  Race race;
  const uint64_t begin = addresses.lowest - kSharedBegin;
  const uint64_t all = addresses.highest + bytes - addresses.lowest;
  uint8_t* const shadow = block.shared_written();
  if (addresses.consecutive && (store ? warp.undefined.empty() : first_unwritten(shadow + begin, all) == all)) {
    access.consecutive = addresses.lanes == kLanes;
    if (store) {
      std::memset(shadow + begin, 1, all);
    }
    if (races) {
      block.shared_races().touch_all(begin, i.access_bytes, i.element_bytes, {addresses.first_lane, addresses.lanes},
                                     store, moment, race);
    }
  } else if (addresses.equal && !store && all_written(shadow + begin, bytes)) {
    if (races) {
      block.shared_races().read_one(begin, i.access_bytes, i.element_bytes, addresses.mask, moment, race);
    }
  } else {
    for_lanes(addresses.mask, [&](int lane) {
      const uint64_t offset = addresses.at(lane) - kSharedBegin;
      check_written(warp, i, lane, shadow + offset, store, access,
                    [&] { return bytes_at(i, offset) + ", which were never written"; });
      if (races) {
        block.shared_races().touch(offset, i.access_bytes, i.element_bytes, lane, store, moment, race);
      }
    });
  }
  if (race.found) {
    throw_race(warp, i, race, store, bytes_at(i, addresses.at(race.lane) - kSharedBegin));
  }
}

}  // namespace virtual_gpu

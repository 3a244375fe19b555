#include "virtual_gpu/access.h"
#include "virtual_gpu/lanes.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

namespace virtual_gpu {

namespace {

std::string bytes_at(const Instruction& i, uint64_t address) {
  return fmt::format("{} bytes at {:#x}", i.access_bytes, address);
}

/// Sectors of 32 bytes that the lanes touch.
uint64_t count_sectors(const Addresses& addresses, uint64_t bytes) {
  if (addresses.equal || addresses.consecutive) {
    return (addresses.highest + bytes - 1) / 32 - addresses.lowest / 32 + 1;
  }
  constexpr size_t kSlots = 128;
  std::array<uint64_t, kSlots> slots;
  slots.fill(~uint64_t{0});
  uint64_t count = 0;
  for_lanes(addresses.mask, [&](int lane) {
    const uint64_t sector = addresses.at(lane) / 32;  // an access is aligned, and so within one sector
    size_t slot = sector % kSlots;
    while (slots[slot] != ~uint64_t{0} && slots[slot] != sector) {
      slot = (slot + 1) % kSlots;
    }
    count += slots[slot] != sector ? 1 : 0;
    slots[slot] = sector;
  });
  return count;
}

/// Whether all bytes of lanes that lie side by side were written.
bool written(const Region& region, const Addresses& addresses, uint64_t bytes) {
  const uint64_t all = addresses.highest + bytes - addresses.lowest;
  return first_unwritten(region.written + (addresses.lowest - region.begin), all) == all;
}

/// The lanes lie side by side in one region: whole ranges are checked at once.
void find_range(Warp& warp, const Instruction& i, const Addresses& addresses, const Region& region, bool store) {
  const uint64_t bytes = i.access_bytes;
  const uint64_t all = bytes * static_cast<uint64_t>(addresses.lanes);
  const uint64_t offset = addresses.lowest - region.begin;
  if (store && region.written != nullptr) {
    std::memset(region.written + offset, 1, all);
  }
  if (region.races != nullptr) {
    Race race;
    region.races->touch_all(offset, i.access_bytes, i.element_bytes, {addresses.first_lane, addresses.lanes}, store,
                            warp.block().moment(warp, false), race);
    if (race.found) {
      throw_race(warp, i, race, store, bytes_at(i, addresses.at(race.lane)));
    }
  }
}

}  // namespace

void find_global(Warp& warp, const Instruction& i, const Addresses& addresses, bool store, Access& access) {
  Block& block = warp.block();
  const uint64_t bytes = i.access_bytes;
  Counters& counters = block.counters;
  (store ? counters.global_store_requests : counters.global_load_requests) += 1;
  (store ? counters.global_store_bytes : counters.global_load_bytes) += bytes * static_cast<uint64_t>(addresses.lanes);
  (store ? counters.global_store_sectors : counters.global_load_sectors) += count_sectors(addresses, bytes);

  const Region region = block.find(addresses.at(addresses.first_lane), i.index);
  if (addresses.lowest >= region.begin && addresses.highest + bytes <= region.end) {
    std::byte* const origin = region.data - region.begin;
    VIRTUAL_GPU_LANES {
      access.at[static_cast<size_t>(lane)] = origin + addresses.of[static_cast<size_t>(lane)];
    }
    const auto whole = [&] {
      return region.written == nullptr || (store ? warp.undefined.empty() : written(region, addresses, bytes));
    };
    if (addresses.consecutive && whole()) {
      find_range(warp, i, addresses, region, store);
      access.consecutive = addresses.lanes == kLanes;
      return;
    }
  }
  const Moment moment = block.moment(warp, false);
  Race race;
  for_lanes(addresses.equal && !store ? uint32_t{1} << addresses.first_lane : addresses.mask, [&](int lane) {
    const uint64_t address = addresses.at(lane);
    const Region& here = address >= region.begin && address < region.end ? region : block.find(address, i.index);
    if (address < here.begin || address + bytes > here.end) {
      const uint64_t outside = address < here.begin || address >= here.end ? address : here.end;
      warp.fault(Fault::Kind::kIllegalAddress, i, lane,
                 fmt::format("{}: {}", bytes_at(i, address), block.context().memory->describe(outside)));
    }
    const uint64_t offset = address - here.begin;
    access.at[static_cast<size_t>(lane)] = here.data + offset;
    if (here.written != nullptr) {
      check_written(warp, i, lane, here.written + offset, store, access, [&] {
        return fmt::format("{}, which were never written: {}", bytes_at(i, address),
                           block.context().memory->describe(address));
      });
    }
    if (here.races == nullptr) {
      return;
    }
    if (addresses.equal && !store) {
      here.races->read_one(offset, i.access_bytes, i.element_bytes, addresses.mask, moment, race);
    } else {
      here.races->touch(offset, i.access_bytes, i.element_bytes, lane, store, moment, race);
    }
    if (race.found) {
      throw_race(warp, i, race, store, bytes_at(i, address));
    }
  });
}

}  // namespace virtual_gpu

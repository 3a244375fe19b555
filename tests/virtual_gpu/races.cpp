#include "virtual_gpu/races.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <string_view>

namespace virtual_gpu {

namespace {

uint32_t time_of(Touch touch) {
  return static_cast<uint32_t>(touch >> 32U);
}
uint32_t who(Touch touch) {
  return static_cast<uint32_t>(touch);
}
Touch touch_at(uint32_t time, uint32_t id) {
  return Touch{time} << 32U | id;
}

/// Whether `me` and the one of `touch` are two threads without a barrier between.
[[gnu::always_inline]] inline bool unordered(Touch touch, uint32_t me, const Moment& moment) {
  const bool same_block = ((who(touch) ^ me) >> thread_id::kThreadBits) == 0;
  return time_of(touch) >= (same_block ? moment.last_barrier : moment.launch_begin) && who(touch) != me;
}

/// The readers of a piece once `me` has read it too.
[[gnu::always_inline]] inline Touch with_reader(Touch old, uint32_t me, const Moment& moment) {
  const bool same_block = ((who(old) ^ me) >> thread_id::kThreadBits) == 0;
  const bool counts = time_of(old) >= (same_block ? moment.last_barrier : moment.launch_begin);
  const uint32_t many = same_block ? me | thread_id::kManyThreads : thread_id::kManyBlocks;
  return touch_at(moment.now, counts && who(old) != me ? many : me);
}

/// Threads of one warp that have met since are in order; nothing else is, once two touches are unordered.
bool met_since(Touch touch, uint32_t me, const Moment& moment) {
  if (thread_id::block(who(touch)) != thread_id::block(me) || moment.warp_met <= moment.last_barrier) {
    return false;
  }
  const uint32_t other = thread_id::thread(who(touch));
  const uint32_t first = thread_id::thread(moment.first_thread);
  const bool same_warp = other >= first && other < first + 32;
  return other == thread_id::kManyThreads || (same_warp && time_of(touch) < moment.warp_met);
}

void report(Race& race, Touch touch, bool wrote, uint32_t me, const Moment& moment) {
  if (!race.found && unordered(touch, me, moment) && !met_since(touch, me, moment)) {
    race.found = true;
    race.other_wrote = wrote;
    race.other = who(touch);
    race.lane = static_cast<int>(me - moment.first_thread);
  }
}

/// `count` pieces, of which each lane has 2^lane_shift, from `first` of `moment` on.
bool read_pieces(const Touch* writes, Touch* reads, size_t count, uint32_t lane_shift, uint32_t first,
                 const Moment& moment_of) {
  const Moment moment = moment_of;
  uint32_t any = 0;
#pragma GCC ivdep
  for (size_t k = 0; k < count; ++k) {
    const uint32_t me = first + static_cast<uint32_t>(k >> lane_shift);
    any |= unordered(writes[k], me, moment) ? 1U : 0U;
    reads[k] = with_reader(reads[k], me, moment);
  }
  return any != 0;
}

bool write_pieces(Touch* writes, const Touch* reads, size_t count, uint32_t lane_shift, uint32_t first,
                  const Moment& moment_of) {
  const Moment moment = moment_of;
  uint32_t any = 0;
  for (size_t k = 0; k < count; ++k) {
    const uint32_t me = first + static_cast<uint32_t>(k >> lane_shift);
    any |= unordered(writes[k], me, moment) || unordered(reads[k], me, moment) ? 1U : 0U;
  }
  if (any != 0) {
    return true;
  }
  for (size_t k = 0; k < count; ++k) {
    writes[k] = touch_at(moment.now, first + static_cast<uint32_t>(k >> lane_shift));
  }
  return false;
}

}  // namespace

Races::Page& Races::make_page(uint64_t index, uint32_t element) {
  std::unique_ptr<Page>& found = pages_[index];
  const uint32_t shift = element >= 4 ? 2 : static_cast<uint32_t>(std::countr_zero(element));
  if (found == nullptr) {
    found = std::make_unique<Page>();
    found->shift = shift;
    found->writes.resize(kPageBytes >> shift);
    found->reads.resize(kPageBytes >> shift);
  }
  Page& page = *found;
  while (page.shift > shift) {
    for (std::vector<Touch>* const touches : {&page.writes, &page.reads}) {
      std::vector<Touch> finer(touches->size() * 2);
      for (size_t k = 0; k < finer.size(); ++k) {
        finer[k] = (*touches)[k / 2];
      }
      *touches = std::move(finer);
    }
    --page.shift;
  }
  page.bytes = 1U << page.shift;
  return page;
}

void Races::touch(uint64_t offset, uint32_t bytes, uint32_t element, int lane, bool write, const Moment& moment,
                  Race& race) {
  Page& page = this->page(offset / kPageBytes, element);  // an access is aligned, and so within one page
  const size_t first = (offset % kPageBytes) >> page.shift;
  const size_t count = std::max<size_t>(1, bytes >> page.shift);
  const uint32_t me = moment.first_thread + static_cast<uint32_t>(lane);
  for (size_t k = first; k < first + count; ++k) {
    report(race, page.writes[k], true, me, moment);
    if (write) {
      report(race, page.reads[k], false, me, moment);
      page.writes[k] = touch_at(moment.now, me);
    } else {
      page.reads[k] = with_reader(page.reads[k], me, moment);
    }
  }
}

void Races::read_one(uint64_t offset, uint32_t bytes, uint32_t element, uint32_t mask, const Moment& moment,
                     Race& race) {
  touch(offset, bytes, element, std::countr_zero(mask), false, moment, race);
  if (const uint32_t others = mask & (mask - 1); others != 0) {  // what one of them finds, all of them find
    touch(offset, bytes, element, std::countr_zero(others), false, moment, race);
  }
}

void Races::touch_all(uint64_t offset, uint32_t bytes, uint32_t element, Lanes lanes, bool write, const Moment& moment,
                      Race& race) {
  const uint64_t end = offset + uint64_t{bytes} * static_cast<uint64_t>(lanes.count);
  uint64_t lane = static_cast<uint64_t>(lanes.first);
  for (uint64_t begin = offset; begin < end;) {
    const uint64_t part = std::min(end, (begin / kPageBytes + 1) * kPageBytes) - begin;
    Page& page = this->page(begin / kPageBytes, element);
    const size_t first = (begin % kPageBytes) >> page.shift;
    const size_t count = part >> page.shift;
    const uint32_t lane_shift = static_cast<uint32_t>(std::countr_zero(bytes)) - page.shift;
    const uint32_t thread = moment.first_thread + static_cast<uint32_t>(lane);
    const bool suspicious =
        write ? write_pieces(page.writes.data() + first, page.reads.data() + first, count, lane_shift, thread, moment)
              : read_pieces(page.writes.data() + first, page.reads.data() + first, count, lane_shift, thread, moment);
    if (suspicious) {
      for (uint64_t at = 0; at < part; at += bytes) {
        touch(begin + at, bytes, element, static_cast<int>(lane + at / bytes), write, moment, race);
      }
    }
    lane += part / bytes;
    begin += part;
  }
}

uint32_t tick() {
  static std::atomic<uint32_t> time{0};
  return ++time;
}

bool races_are_checked() {
  static const bool checked = [] {
    const char* const setting = std::getenv("NORMA_VIRTUAL_GPU_RACES");
    return setting == nullptr || std::string_view(setting) != "0";
  }();
  return checked;
}

}  // namespace virtual_gpu

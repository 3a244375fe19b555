#include "virtual_gpu/lanes.h"
#include "virtual_gpu/opcode.h"

#include <fmt/format.h>

#include <algorithm>

// shfl.sync, vote.sync, activemask, bar.warp.sync: what the lanes of a warp do together.

namespace virtual_gpu {

namespace {

/// Every lane that a mask names must be at the instruction, and every lane at the instruction must be named.
void check_members(Warp& warp, const Instruction& i, uint32_t mask, Operand members) {
  const Alias<uint32_t>* named = warp.in<uint32_t>(members);
  const uint32_t live = warp.live();
  const uint32_t wrong = lanes_where([&](int lane) { return (named[lane] & live) != mask; }) & mask;
  if (wrong != 0) {
    const int lane = std::countr_zero(wrong);
    warp.fault(
        Fault::Kind::kDivergence, i, lane,
        fmt::format("its mask names the lanes {:#010x}, and the lanes {:#010x} are there", named[lane] & live, mask));
  }
}

enum class Shuffle { kUp, kDown, kButterfly, kIndex };

/// operands: the result, whether the source is in range, the value, the distance, clamp and segments, the members.
template <Shuffle kMode>
void shuffle(Warp& warp, const Instruction& i, uint32_t mask) {
  check_members(warp, i, mask, i.operands[5]);
  const Alias<uint32_t>* value = warp.in<uint32_t>(i.operands[2]);
  const Alias<uint32_t>* distance = warp.in<uint32_t>(i.operands[3]);
  const Alias<uint32_t>* bounds = warp.in<uint32_t>(i.operands[4]);
  alignas(64) int32_t from[kLanes];
  alignas(64) uint32_t results[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int32_t by = static_cast<int32_t>(distance[lane] & 0x1f);
    const int32_t segment = static_cast<int32_t>((bounds[lane] >> 8U) & 0x1f);
    const int32_t limit = (lane & segment) | (static_cast<int32_t>(bounds[lane] & 0x1f) & ~segment);
    const int32_t source = kMode == Shuffle::kUp          ? lane - by
                           : kMode == Shuffle::kDown      ? lane + by
                           : kMode == Shuffle::kButterfly ? lane ^ by
                                                          : (lane & segment) | (by & ~segment);
    const bool in_range = kMode == Shuffle::kUp ? source >= limit : source <= limit;
    from[lane] = in_range ? source : lane | kLanes;  // a lane out of range reads itself
  }
  for (int lane = 0; lane < kLanes; ++lane) {
    results[lane] = value[from[lane] & (kLanes - 1)];
  }
  if (mask != kAllLanes) {
    const uint32_t absent = lanes_where([&](int lane) { return ((mask >> (from[lane] & 31)) & 1U) == 0; }) & mask;
    if (absent != 0) {
      const int lane = std::countr_zero(absent);
      warp.fault(Fault::Kind::kDivergence, i, lane, fmt::format("it reads lane {}, which is not there", from[lane]));
    }
  }
  write_lanes<uint32_t>(warp.out<uint32_t>(i.operands[0]), mask, [&](int lane) { return results[lane]; });
  warp.set_predicate(i.operands[1], lanes_where([&](int lane) { return from[lane] < kLanes; }), mask);
}

enum class Vote { kAny, kAll, kUniform };

template <Vote kMode>
void vote(Warp& warp, const Instruction& i, uint32_t mask) {
  check_members(warp, i, mask, i.operands[2]);
  const uint32_t bits = warp.predicate(i.operands[1]) & mask;
  const bool result = kMode == Vote::kAny ? bits != 0 : kMode == Vote::kAll ? bits == mask : bits == 0 || bits == mask;
  warp.set_predicate(i.operands[0], result ? kAllLanes : 0, mask);
}

void ballot(Warp& warp, const Instruction& i, uint32_t mask) {
  check_members(warp, i, mask, i.operands[2]);
  const uint32_t bits = warp.predicate(i.operands[1]) & mask;
  write_lanes<uint32_t>(warp.out<uint32_t>(i.operands[0]), mask, [&](int) { return bits; });
}

void active(Warp& warp, const Instruction& i, uint32_t mask) {
  write_lanes<uint32_t>(warp.out<uint32_t>(i.operands[0]), mask, [&](int) { return mask; });
}

void meet(Warp& warp, const Instruction& i, uint32_t mask) {
  check_members(warp, i, mask, i.operands[0]);
  warp.meet_lanes();
}

Choice shuffle_choice(const Opcode& opcode) {
  const Handler run = opcode.has("up")     ? shuffle<Shuffle::kUp>
                      : opcode.has("down") ? shuffle<Shuffle::kDown>
                      : opcode.has("bfly") ? shuffle<Shuffle::kButterfly>
                                           : shuffle<Shuffle::kIndex>;
  return {run, {4, 0, 4, 4, 4, 4}};
}

}  // namespace

Choice warp_choice(const Opcode& opcode) {
  Choice choice;
  if (opcode.text.starts_with("shfl.sync.")) {
    choice = shuffle_choice(opcode);
    choice.outputs = 2;
  } else if (opcode.text == "vote.sync.any.pred") {
    choice = {vote<Vote::kAny>, {0, 0, 4}};
  } else if (opcode.text == "vote.sync.all.pred") {
    choice = {vote<Vote::kAll>, {0, 0, 4}};
  } else if (opcode.text == "vote.sync.uni.pred") {
    choice = {vote<Vote::kUniform>, {0, 0, 4}};
  } else if (opcode.text == "vote.sync.ballot.b32") {
    choice = {ballot, {4, 0, 4}};
  } else if (opcode.text == "activemask.b32") {
    choice = {active, {4}};
  } else if (opcode.text == "bar.warp.sync") {
    choice = {meet, {4}};
    choice.outputs = 0;
  }
  choice.registers_only = false;
  choice.meets = opcode.name != "activemask";
  return choice;
}

}  // namespace virtual_gpu

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
  for_lanes(mask, [&](int lane) {
    const uint32_t member = named[lane];
    if ((member & warp.live()) != mask) {
      warp.fault(Fault::Kind::kDivergence, i, lane,
                 fmt::format("its mask names the lanes {:#010x}, and the lanes {:#010x} are there", member, mask));
    }
  });
}

enum class Shuffle { kUp, kDown, kButterfly, kIndex };

/// operands: the result, the predicate, the value, the distance, clamp and segments, the members. `immediate`: 1 with
/// a predicate.
template <Shuffle kMode>
void shuffle(Warp& warp, const Instruction& i, uint32_t mask) {
  const size_t first = i.outputs;
  check_members(warp, i, mask, i.operands[first + 3]);
  const Alias<uint32_t>* value = warp.in<uint32_t>(i.operands[first]);
  const Alias<uint32_t>* distance = warp.in<uint32_t>(i.operands[first + 1]);
  const Alias<uint32_t>* bounds = warp.in<uint32_t>(i.operands[first + 2]);
  Alias<uint32_t>* to = warp.out<uint32_t>(i.operands[0]);
  uint32_t results[kLanes];
  uint32_t inside = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const int by = static_cast<int>(distance[lane] & 0x1f);
    const int segment = static_cast<int>((bounds[lane] >> 8U) & 0x1f);
    const int highest = (lane & segment) | (static_cast<int>(bounds[lane] & 0x1f) & ~segment);
    const int lowest = lane & segment;
    int from = 0;
    bool in_range = false;
    switch (kMode) {
      case Shuffle::kUp: from = lane - by, in_range = from >= highest; break;
      case Shuffle::kDown: from = lane + by, in_range = from <= highest; break;
      case Shuffle::kButterfly: from = lane ^ by, in_range = from <= highest; break;
      case Shuffle::kIndex: from = lowest | (by & ~segment), in_range = from <= highest; break;
    }
    from = in_range ? from : lane;
    inside |= static_cast<uint32_t>(in_range) << lane;
    results[lane] = value[from];
    if (((mask >> lane) & 1U) != 0 && ((mask >> from) & 1U) == 0) {
      warp.fault(Fault::Kind::kDivergence, i, lane, fmt::format("it reads lane {}, which is not there", from));
    }
  }
  write_lanes<uint32_t>(to, mask, [&](int lane) { return results[lane]; });
  if (i.outputs == 2) {
    warp.set_predicate(i.operands[1], inside, mask);
  }
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
  return choice;
}

}  // namespace virtual_gpu

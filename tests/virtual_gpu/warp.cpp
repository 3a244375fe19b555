#include "virtual_gpu/warp.h"

#include "virtual_gpu/block.h"

#include <fmt/format.h>

#include <algorithm>

namespace virtual_gpu {

void Warp::start(Block& block, std::byte* registers, uint32_t first_thread, uint32_t threads) {
  block_ = &block;
  bases_[0] = registers;
  bases_[1] = const_cast<std::byte*>(block.constants());  // read only, as all of in()
  first_thread_ = first_thread;
  const uint32_t count = std::min<uint32_t>(kLanes, threads - first_thread);
  live_ = count == kLanes ? kAllLanes : (1U << count) - 1;
  current_ = {0, live_};
  waiting_.clear();
  parked_.clear();
  undefined.clear();
  limit_ = kAllLanes;
  carry = 0;
  lanes_met_ = 0;
  state_ = State::kReady;
}

Warp::State Warp::advance() {
  const Instruction* const code = block_->kernel().code.data();
  uint64_t executed = 0;
  while (state_ == State::kReady) {
    if (current_.pc >= limit_) {
      join();
    }
    const Instruction& i = code[current_.pc];
    if (i.meets && (current_.mask != live_ || current_.required != 0) && wait_for_others(i)) {
      continue;
    }
    ++executed;
    const uint32_t mask = guarded(i);
    if (!undefined.empty()) {
      undefined.check(*this, i);
    }
    switch (i.flow) {
      case Flow::kNext:
        if (mask != 0) {
          if (!undefined.empty()) {
            undefined.follow(*this, i, mask);
          }
          i.run(*this, i, mask == live_ && i.registers_only ? kAllLanes : mask);
        }
        ++current_.pc;
        break;
      case Flow::kBranch: branch(i, mask); break;
      case Flow::kExit: exit(mask); break;
      case Flow::kBarrier: state_ = State::kAtBarrier; break;
    }
  }
  block_->counters.warp_instructions += executed;
  return state_;
}

void Warp::release() {
  ++current_.pc;
  state_ = State::kReady;
}

void Warp::meet_lanes() {
  lanes_met_ = block_->pass_time();
}

void Warp::branch(const Instruction& i, uint32_t taken) {
  const uint32_t target = static_cast<uint32_t>(i.immediate);
  if (taken == current_.mask) {
    current_.pc = target;
    return;
  }
  ++current_.pc;
  if (taken == 0) {
    return;
  }
  current_.mask &= ~taken;
  wait({target, taken});
}

void Warp::exit(uint32_t mask) {
  live_ &= ~mask;
  current_.mask &= ~mask;
  ++current_.pc;
  if (current_.mask == 0) {
    next_group();
  }
}

void Warp::wait(const LaneGroup& group) {
  waiting_.push_back(group);
  std::sort(waiting_.begin(), waiting_.end(), [](const LaneGroup& a, const LaneGroup& b) { return a.pc > b.pc; });
  limit_ = waiting_.back().pc;
}

void Warp::join() {
  // The current lanes stand at the lowest waiting ones, or behind them.
  if (current_.pc > limit_) {
    wait(current_);
    next_group();
  }
  while (!waiting_.empty() && waiting_.back().pc == current_.pc) {
    current_.mask |= waiting_.back().mask;
    current_.required |= waiting_.back().required;
    waiting_.pop_back();
  }
  limit_ = waiting_.empty() ? kAllLanes : waiting_.back().pc;
}

/// The lowest waiting lanes go on; where none are left, those that are parked try once more.
void Warp::next_group() {
  if (waiting_.empty()) {
    for (const LaneGroup& group : parked_) {
      wait(group);
    }
    parked_.clear();
  }
  if (waiting_.empty()) {
    state_ = State::kDone;
    return;
  }
  current_ = waiting_.back();
  waiting_.pop_back();
  limit_ = waiting_.empty() ? kAllLanes : waiting_.back().pc;
}

/// A barrier or shuffle that some lanes have reached waits for the others that must come, as on a GPU. It is a fault
/// once no lanes are left that could. Returns whether other lanes go first.
bool Warp::wait_for_others(const Instruction& i) {
  std::erase_if(parked_, [&](const LaneGroup& group) {
    const bool here = group.pc == current_.pc;
    current_.mask |= here ? group.mask : 0;
    current_.required |= here ? group.required : 0;
    return here;
  });
  const bool barrier = i.flow == Flow::kBarrier;
  const int lane = std::countr_zero(current_.mask);
  current_.required |= barrier ? live_ : in<uint32_t>(i.operands[i.operand_count - 1U])[lane] & live_;
  const uint32_t absent = current_.required & ~current_.mask;
  if (absent == 0) {
    current_.required = 0;
    return false;
  }
  if (!waiting_.empty()) {
    parked_.push_back(current_);
    next_group();
    return true;
  }
  fault(Fault::Kind::kDivergence, i, lane,
        barrier ? fmt::format("the lanes {:#010x} of its warp are at the barrier, and the lanes {:#010x} do not come",
                              current_.mask, absent)
                : fmt::format("its mask names the lanes {:#010x}, and the lanes {:#010x} are there", current_.required,
                              current_.mask));
}

void Warp::fault(Fault::Kind kind, const Instruction& instruction, int lane, const std::string& what) const {
  const Module::Kernel& kernel = block_->kernel();
  const Source& source = kernel.sources[instruction.index];
  std::string place = kernel.name;
  if (const auto file = kernel.files->find(source.file); source.line != 0 && file != kernel.files->end()) {
    place += fmt::format(", {}:{}", file->second, source.line);
  }
  const Dim3 block = block_->index();
  const Dim3 thread = block_->thread_index(first_thread_ + static_cast<uint32_t>(lane));
  throw Fault(kind, fmt::format("{}: block ({}, {}, {}), thread ({}, {}, {}), {}: {}", place, block.x, block.y, block.z,
                                thread.x, thread.y, thread.z, source.text, what));
}

}  // namespace virtual_gpu

#include "virtual_gpu/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace virtual_gpu {

namespace {

constexpr uint64_t kAlignment = 64;

uint64_t value_of(Special special, const Launch& launch, Dim3 block, Dim3 thread, uint32_t number) {
  switch (special) {
    case Special::kTidX: return thread.x;
    case Special::kTidY: return thread.y;
    case Special::kTidZ: return thread.z;
    case Special::kNtidX: return launch.block.x;
    case Special::kNtidY: return launch.block.y;
    case Special::kNtidZ: return launch.block.z;
    case Special::kCtaidX: return block.x;
    case Special::kCtaidY: return block.y;
    case Special::kCtaidZ: return block.z;
    case Special::kNctaidX: return launch.grid.x;
    case Special::kNctaidY: return launch.grid.y;
    case Special::kNctaidZ: return launch.grid.z;
    case Special::kLane: return number % kLanes;
    case Special::kWarp: return number / kLanes;
  }
  return 0;
}

}  // namespace

Block::Block(const LaunchContext& context)
    : context_(context),
      threads_(context.launch->block.x * context.launch->block.y * context.launch->block.z),
      shared_races_(context.kernel->static_shared_bytes + context.launch->dynamic_shared_bytes) {
  const Module::Kernel& k = kernel();
  warps_.resize((threads_ + kLanes - 1) / kLanes);
  registers_.reset(new std::byte[k.constants.size() + warps_.size() * k.register_bytes + kAlignment]);
  const uint64_t begin = reinterpret_cast<uint64_t>(registers_.get());
  constants_ = registers_.get() + (kAlignment - begin % kAlignment) % kAlignment;
  std::memcpy(constants_, k.constants.data(), k.constants.size());
  shared_.resize(k.static_shared_bytes + context.launch->dynamic_shared_bytes);
  shared_written_.resize(shared_.size());
  local_.resize(threads_ * k.local_bytes);
  local_written_.resize(local_.size());
}

Dim3 Block::thread_index(uint32_t thread) const {
  const Dim3 size = context_.launch->block;
  return {thread % size.x, thread / size.x % size.y, thread / size.x / size.y};
}

void Block::start(uint64_t number) {
  const Launch& launch = *context_.launch;
  const Module::Kernel& k = kernel();
  index_.x = static_cast<uint32_t>(number % launch.grid.x);
  index_.y = static_cast<uint32_t>(number / launch.grid.x % launch.grid.y);
  index_.z = static_cast<uint32_t>(number / launch.grid.x / launch.grid.y);
  number_ = static_cast<uint32_t>(number % (thread_id::block(thread_id::kManyBlocks)));
  begin_ = pass_time();
  last_barrier_ = begin_;
  std::fill(local_written_.begin(), local_written_.end(), uint8_t{0});
  std::fill(shared_.begin(), shared_.end(), std::byte{0xff});
  std::fill(shared_written_.begin(), shared_written_.end(), uint8_t{0});
  for (size_t w = 0; w < warps_.size(); ++w) {
    std::byte* const registers = constants_ + k.constants.size() + w * k.register_bytes;
    const uint32_t first = static_cast<uint32_t>(w) * kLanes;
    warps_[w].start(*this, registers, first, threads_);
  }
  if (!filled_) {
    fill_specials(true);
    filled_ = true;
  }
  fill_specials(false);
}

/// Puts the places of threads into their registers, which nothing else uses: those that all blocks share once, and
/// those of a block for each.
void Block::fill_specials(bool of_launch) {
  for (const auto& [special, operand] : kernel().specials) {
    const bool of_block = special == Special::kCtaidX || special == Special::kCtaidY || special == Special::kCtaidZ;
    if (of_block == of_launch) {
      continue;
    }
    for (const Warp& warp : warps_) {
      Alias<uint32_t>* const to = warp.out<uint32_t>(operand);
      for (uint32_t lane = 0; lane < kLanes; ++lane) {
        const uint32_t thread = warp.first_thread() + lane;
        const Dim3 index = of_block ? Dim3{} : thread_index(thread);
        to[lane] = static_cast<uint32_t>(value_of(special, *context_.launch, index_, index, thread));
      }
    }
  }
}

void Block::run(uint64_t number) {
  start(number);
  while (true) {
    bool waits = false;
    for (Warp& warp : warps_) {
      if (warp.state() != Warp::State::kDone) {
        waits |= warp.advance() == Warp::State::kAtBarrier;
      }
    }
    if (!waits) {
      return;
    }
    meet_at_barrier();
  }
}

void Block::meet_at_barrier() {
  const Warp* first = nullptr;
  for (Warp& warp : warps_) {
    if (warp.state() != Warp::State::kAtBarrier) {
      continue;
    }
    if (first == nullptr) {
      first = &warp;
    } else if (warp.barrier() != first->barrier()) {
      const Source& other = kernel().sources[first->barrier()];
      warp.fault(Fault::Kind::kDivergence, kernel().code[warp.barrier()], 0,
                 fmt::format("its warp waits here, and warp {} at the barrier of line {}",
                             first->first_thread() / kLanes, other.line));
    }
  }
  last_barrier_ = pass_time();
  for (Warp& warp : warps_) {
    if (warp.state() == Warp::State::kAtBarrier) {
      warp.release();
    }
  }
}

Moment Block::moment(const Warp& warp, bool shared) const {
  return {.now = now_,
          .launch_begin = shared ? begin_ : context_.begin,
          .last_barrier = last_barrier_,
          .first_thread = thread_id::of(shared ? 0 : number_, warp.first_thread()),
          .warp_met = warp.lanes_met()};
}

const Region& Block::find(uint64_t address, uint32_t index) {
  Region& region = regions_[index % regions_.size()];
  if (address >= region.begin && address < region.end) {
    return region;
  }
  if (Allocation* const allocation = context_.memory->find(address);
      allocation != nullptr && allocation->device == context_.launch->device) {
    const bool races = context_.races && !context_.several_threads;
    if (races && allocation->races == nullptr) {
      allocation->races = std::make_unique<Races>(allocation->bytes);
    }
    region = {allocation->begin, allocation->end(), allocation->data, allocation->written.data(),
              races ? allocation->races.get() : nullptr};
    return region;
  }
  ModuleGlobals& globals = *kernel().globals;
  if (address >= kGlobalsBegin && address < kGlobalsBegin + globals.bytes.size()) {
    region = {kGlobalsBegin, kGlobalsBegin + globals.bytes.size(), globals.bytes.data(), nullptr, nullptr};
    return region;
  }
  region = {};
  return region;
}

}  // namespace virtual_gpu

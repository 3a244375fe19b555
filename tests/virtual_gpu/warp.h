#pragma once

#include "virtual_gpu/fault.h"
#include "virtual_gpu/kernel.h"
#include "virtual_gpu/undefined.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace virtual_gpu {

class Block;

/// A type whose values may lie in memory that was written as another type: registers have none.
template <class T>
struct AliasOf {
  typedef T type __attribute__((may_alias));
};
template <class T>
using Alias = typename AliasOf<T>::type;

/// Lanes of a warp that stand at one instruction.
struct LaneGroup {
  uint32_t pc = 0;
  uint32_t mask = 0;
  uint32_t required = 0;  ///< the lanes that must come to its barrier or shuffle, which it waits for
};

/// 32 threads of a block with their registers.
class Warp {
 public:
  /// Why advance() came back.
  enum class State : uint8_t { kReady, kAtBarrier, kDone };

  /// Sets it to the kernel's first instruction, with the lanes of the block's threads from `first_thread` on.
  void start(Block& block, std::byte* registers, uint32_t first_thread, uint32_t threads);
  /// Runs to the next barrier or to the end. Lanes at the lowest instruction go first, and lanes that meet go on
  /// together.
  State advance();

  /// The lanes of an operand that is read.
  template <class T>
  [[nodiscard]] const Alias<T>* in(Operand operand) const {
    return reinterpret_cast<const Alias<T>*>(bases_[operand >> 31] + (operand & ~kConstant));
  }
  /// The lanes of an operand that is written.
  template <class T>
  [[nodiscard]] Alias<T>* out(Operand operand) const {
    return reinterpret_cast<Alias<T>*>(bases_[0] + operand);
  }
  [[nodiscard]] uint32_t predicate(Operand operand) const { return *in<uint32_t>(operand); }
  void set_predicate(Operand operand, uint32_t value, uint32_t mask) const {
    uint32_t& bits = reinterpret_cast<Alias<uint32_t>&>(*out<uint32_t>(operand));
    bits = (bits & ~mask) | (value & mask);
  }

  [[nodiscard]] Block& block() const { return *block_; }
  [[nodiscard]] uint32_t first_thread() const { return first_thread_; }
  [[nodiscard]] uint32_t live() const { return live_; }
  /// The lanes that stand at the current instruction.
  [[nodiscard]] uint32_t active() const { return current_.mask; }
  /// The lanes for which the instruction's guard holds.
  [[nodiscard]] uint32_t guarded(const Instruction& i) const {
    if (i.guard == kNoOperand) {
      return current_.mask;
    }
    return current_.mask & (i.guard_negated ? ~predicate(i.guard) : predicate(i.guard));
  }
  [[nodiscard]] State state() const { return state_; }
  /// Where it waits at a barrier.
  [[nodiscard]] uint32_t barrier() const { return current_.pc; }
  /// What of its registers was never written.
  Undefined undefined;
  /// The carry flags of its lanes, which add.cc sets and addc reads.
  uint32_t carry = 0;
  /// Its lanes have met: what they did before is ordered before what they do from here on.
  void meet_lanes();
  [[nodiscard]] uint32_t lanes_met() const { return lanes_met_; }
  /// Goes on after the barrier at which it waits.
  void release();

  /// Throws a Fault of the instruction's lane that names the kernel, the line, the block and the thread.
  [[noreturn]] void fault(Fault::Kind kind, const Instruction& instruction, int lane, const std::string& what) const;

 private:
  void branch(const Instruction& instruction, uint32_t taken);
  void exit(uint32_t mask);
  void join();
  void next_group();
  void wait(const LaneGroup& group);
  bool wait_for_others(const Instruction& instruction);

  std::byte* bases_[2] = {nullptr, nullptr};
  Block* block_ = nullptr;
  LaneGroup current_;
  std::vector<LaneGroup> waiting_;  ///< for the current one to come to them; the lowest last
  std::vector<LaneGroup> parked_;   ///< at a barrier or shuffle, for other lanes to come there
  uint32_t limit_ = kAllLanes;      ///< where the lowest waiting group stands
  uint32_t live_ = 0;
  uint32_t first_thread_ = 0;
  uint32_t lanes_met_ = 0;  ///< when
  State state_ = State::kReady;
};

/// Calls `each(lane)` for each lane of `mask`.
template <class Each>
void for_lanes(uint32_t mask, Each each) {
  for (; mask != 0; mask &= mask - 1) {
    each(std::countr_zero(mask));
  }
}

}  // namespace virtual_gpu

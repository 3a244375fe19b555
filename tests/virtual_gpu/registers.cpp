#include "virtual_gpu/fault.h"
#include "virtual_gpu/kernel.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <utility>

// nvcc gives each value a register of its own: thousands of them. What a kernel needs at one time is far less and stays
// in the processor's first caches, so that registers share places.

namespace virtual_gpu {

namespace {

constexpr uint32_t kNever = 0xffffffff;

using Set = std::vector<uint64_t>;

bool contains(const Set& set, uint32_t id) {
  return ((set[id / 64] >> (id % 64)) & 1U) != 0;
}
void insert(Set& set, uint32_t id) {
  set[id / 64] |= uint64_t{1} << (id % 64);
}

/// Instructions that run one after the other.
struct BasicBlock {
  uint32_t begin = 0;
  uint32_t end = 0;
  std::vector<uint32_t> next;
  Set reads;   ///< before they are written here
  Set writes;  ///< whatever the guard
  Set live;    ///< at the beginning
};

/// Calls `read` and `write` with each register of an instruction.
template <class Read, class Write>
void for_registers(const Instruction& i, Read read, Write write) {
  if (i.guard != kNoOperand && (i.guard & kConstant) == 0) {
    read(i.guard);
  }
  for (size_t k = i.outputs; k < i.operand_count; ++k) {
    if ((i.operands[k] & kConstant) == 0) {
      read(i.operands[k]);
    }
  }
  for (size_t k = 0; k < i.outputs; ++k) {
    if (i.guard != kNoOperand) {
      read(i.operands[k]);  // lanes without the guard keep it
    }
    write(i.operands[k]);
  }
}

std::vector<BasicBlock> cut(const std::vector<Instruction>& code) {
  std::vector<uint32_t> begins = {0};
  for (const Instruction& i : code) {
    if (i.flow == Flow::kBranch) {
      begins.push_back(static_cast<uint32_t>(i.immediate));
    }
    if (i.flow != Flow::kNext && i.index + 1 < code.size()) {
      begins.push_back(i.index + 1);
    }
  }
  std::sort(begins.begin(), begins.end());
  begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
  std::vector<BasicBlock> blocks(begins.size());
  const auto block_at = [&](uint64_t index) {
    return static_cast<uint32_t>(std::lower_bound(begins.begin(), begins.end(), index) - begins.begin());
  };
  for (size_t b = 0; b < blocks.size(); ++b) {
    blocks[b].begin = begins[b];
    blocks[b].end = b + 1 < begins.size() ? begins[b + 1] : static_cast<uint32_t>(code.size());
    const Instruction& last = code[blocks[b].end - 1];
    if (last.flow == Flow::kBranch) {
      blocks[b].next.push_back(block_at(last.immediate));
    }
    const bool falls = last.guard != kNoOperand || (last.flow != Flow::kBranch && last.flow != Flow::kExit);
    if (falls && b + 1 < blocks.size()) {
      blocks[b].next.push_back(static_cast<uint32_t>(b + 1));
    }
  }
  return blocks;
}

void find_live(const std::vector<Instruction>& code, std::vector<BasicBlock>& blocks, size_t registers) {
  for (BasicBlock& block : blocks) {
    block.reads.resize(registers / 64 + 1);
    block.writes.resize(registers / 64 + 1);
    for (uint32_t at = block.begin; at < block.end; ++at) {
      for_registers(
          code[at],
          [&](uint32_t id) {
            if (!contains(block.writes, id)) {
              insert(block.reads, id);
            }
          },
          [&](uint32_t id) { insert(block.writes, id); });
    }
    block.live = block.reads;
  }
  bool changes = true;
  while (changes) {
    changes = false;
    for (size_t b = blocks.size(); b-- > 0;) {
      BasicBlock& block = blocks[b];
      for (const uint32_t next : block.next) {
        for (size_t w = 0; w < block.live.size(); ++w) {
          const uint64_t more = block.live[w] | (blocks[next].live[w] & ~block.writes[w]);
          changes |= more != block.live[w];
          block.live[w] = more;
        }
      }
    }
  }
}

/// From the first to the last instruction at which a register holds something that is still needed.
struct Interval {
  uint32_t id = 0;
  uint32_t begin = kNever;
  uint32_t end = 0;

  void reach(uint32_t at) {
    begin = std::min(begin, at);
    end = std::max(end, at);
  }
};

std::vector<Interval> find_intervals(const std::vector<Instruction>& code, const std::vector<BasicBlock>& blocks,
                                     size_t registers) {
  std::vector<Interval> intervals(registers);
  const auto reach_all = [&](const Set& set, uint32_t at) {
    for (size_t w = 0; w < set.size(); ++w) {
      for (uint64_t bits = set[w]; bits != 0; bits &= bits - 1) {
        intervals[w * 64 + static_cast<size_t>(std::countr_zero(bits))].reach(at);
      }
    }
  };
  for (const BasicBlock& block : blocks) {
    reach_all(block.live, block.begin);
    for (const uint32_t next : block.next) {
      reach_all(blocks[next].live, block.end - 1);
    }
    for (uint32_t at = block.begin; at < block.end; ++at) {
      const auto reach = [&](uint32_t id) { intervals[id].reach(at); };
      for_registers(code[at], reach, reach);
    }
  }
  return intervals;
}

}  // namespace

void place_registers(Module::Kernel& kernel, const std::vector<uint8_t>& register_bytes,
                     const std::vector<bool>& pinned) {
  const size_t registers = register_bytes.size();
  std::vector<BasicBlock> blocks = cut(kernel.code);
  find_live(kernel.code, blocks, registers);
  std::vector<Interval> intervals = find_intervals(kernel.code, blocks, registers);
  std::vector<Interval> used;
  for (size_t id = 0; id < registers; ++id) {
    intervals[id].id = static_cast<uint32_t>(id);
    if (pinned[id]) {
      intervals[id].begin = 0;
      intervals[id].end = kNever;
    }
    if (intervals[id].begin != kNever) {
      used.push_back(intervals[id]);
    }
  }
  std::sort(used.begin(), used.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });

  std::vector<uint32_t> places(registers, 0);
  struct Taken {
    uint32_t end;
    uint32_t place;
  };
  const auto later = [](const Taken& a, const Taken& b) { return a.end > b.end; };
  std::array<std::vector<Taken>, 9> taken;  // by bytes: heaps, what ends first on top
  uint64_t bytes_in_all = 0;
  for (const Interval& each : used) {
    const uint8_t bytes = register_bytes[each.id];
    std::vector<Taken>& heap = taken[bytes];
    uint32_t place = 0;
    if (!heap.empty() && heap.front().end < each.begin) {
      place = heap.front().place;
      std::pop_heap(heap.begin(), heap.end(), later);
      heap.pop_back();
    } else {
      place = static_cast<uint32_t>(bytes_in_all);
      bytes_in_all += bytes == 0 ? 64 : uint64_t{bytes} * kLanes;
    }
    places[each.id] = place;
    heap.push_back({each.end, place});
    std::push_heap(heap.begin(), heap.end(), later);
  }
  kernel.register_bytes = bytes_in_all + kScratchBytes;

  const auto place = [&](Operand& operand) {
    if ((operand & kConstant) == 0 && operand != kNoOperand) {
      operand = places[operand];
    }
  };
  for (Instruction& i : kernel.code) {
    place(i.guard);
    for (size_t k = 0; k < i.operand_count; ++k) {
      place(i.operands[k]);
    }
  }
  for (auto& [special, operand] : kernel.specials) {
    place(operand);
  }
}

}  // namespace virtual_gpu

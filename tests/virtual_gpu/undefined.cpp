#include "virtual_gpu/undefined.h"

#include "virtual_gpu/block.h"
#include "virtual_gpu/warp.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace virtual_gpu {

namespace {

/// Which bytes of a register of so many are not zero.
Undefined::Bytes nonzero_bytes(const Warp& warp, Operand place, size_t bytes) {
  const auto* const values = reinterpret_cast<const uint8_t*>(warp.in<uint8_t>(place));
  Undefined::Bytes result = {};
  for (size_t k = 0; k < bytes * kLanes; ++k) {
    result[k / bytes] |= static_cast<uint8_t>(values[k] != 0 ? 1U << (k % bytes) : 0U);
  }
  return result;
}

}  // namespace

const Undefined::Register* Undefined::find(Operand place) const {
  const auto found =
      std::find_if(registers_.begin(), registers_.end(), [&](const Register& each) { return each.place == place; });
  return found == registers_.end() ? nullptr : &*found;
}

Undefined::Bytes Undefined::of(Operand place) const {
  const Register* const found = find(place);
  return found == nullptr ? Bytes{} : found->bytes;
}

void Undefined::set(Operand place, uint32_t mask, const Bytes& bytes, uint32_t origin) {
  auto found =
      std::find_if(registers_.begin(), registers_.end(), [&](const Register& each) { return each.place == place; });
  if (found == registers_.end()) {
    found = registers_.insert(found, Register{place, origin, {}});
  }
  uint32_t any = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    if (((mask >> lane) & 1U) != 0) {
      found->bytes[lane] = bytes[lane];
    }
    any |= found->bytes[lane];
  }
  if (any == 0) {
    registers_.erase(found);
  }
}

void Undefined::check(Warp& warp, const Instruction& i) const {
  const auto require = [&](Operand place, uint32_t mask, const char* what) {
    const Register* const found = find(place);
    if (found == nullptr) {
      return;
    }
    for_lanes(mask, [&](int lane) {
      if (found->bytes[static_cast<size_t>(lane)] != 0) {
        warp.fault(Fault::Kind::kUninitialized, i, lane,
                   fmt::format("its {} depends on memory that was never written, loaded at line {}", what,
                               warp.block().kernel().sources[found->origin].line));
      }
    });
  };
  require(i.guard, warp.active(), "condition");
  if (i.access_bytes != 0) {
    require(i.operands[i.outputs], warp.guarded(i), "address");
  }
}

/// The flags move as the values do: the shuffle is run once more, for them.
Undefined::Bytes Undefined::of_shuffle(Warp& warp, const Instruction& i, const Bytes& value, uint32_t mask) const {
  const Operand scratch = static_cast<Operand>(warp.block().kernel().register_bytes) - kScratchBytes;
  constexpr Operand kLanesBytes = kLanes * sizeof(uint32_t);
  Instruction flags = i;
  flags.operands[0] = scratch;
  flags.operands[1] = scratch + kLanesBytes;
  flags.operands[2] = scratch + 2 * kLanesBytes;
  std::copy(value.begin(), value.end(), warp.out<uint32_t>(flags.operands[2]));
  flags.run(warp, flags, mask);
  Bytes result;
  std::copy_n(warp.in<uint32_t>(scratch), kLanes, result.begin());
  return result;
}

Undefined::Bytes Undefined::of_result(Warp& warp, const Instruction& i, size_t output, uint32_t mask) const {
  Bytes result = {};
  const Bytes first = of(i.operands[i.outputs]);
  const auto each = [&](auto value) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      result[lane] = static_cast<uint8_t>(value(lane));
    }
  };
  switch (i.undefined) {
    case Follow::kMove: return first;
    case Follow::kShuffle: return output == 0 ? of_shuffle(warp, i, first, mask) : result;
    case Follow::kSplit:
      each([&](size_t lane) { return (first[lane] >> (output * i.element_bytes)) & ((1U << i.element_bytes) - 1); });
      return result;
    case Follow::kJoin:
      for (size_t part = 0; part + 1 < i.operand_count; ++part) {
        const Bytes bytes = of(i.operands[1 + part]);
        each([&](size_t lane) { return result[lane] | bytes[lane] << (part * i.element_bytes); });
      }
      return result;
    case Follow::kBytes: {
      const Bytes second = of(i.operands[2]);
      each([&](size_t lane) { return first[lane] | second[lane]; });
      return result;
    }
    case Follow::kAnd: {  // a byte of zeros makes the other one's count no more
      const Bytes second = of(i.operands[2]);
      const Bytes ones = nonzero_bytes(warp, i.operands[1], i.element_bytes);
      const Bytes other = nonzero_bytes(warp, i.operands[2], i.element_bytes);
      each([&](size_t lane) {
        return (first[lane] & (second[lane] | other[lane])) | (second[lane] & (first[lane] | ones[lane]));
      });
      return result;
    }
    case Follow::kSelect: {
      const Bytes second = of(i.operands[2]);
      const Bytes condition = of(i.operands[3]);
      const uint32_t choice = warp.predicate(i.operands[3]);
      each([&](size_t lane) {
        return condition[lane] != 0 ? 0xff : ((choice >> lane) & 1U) != 0 ? first[lane] : second[lane];
      });
      return result;
    }
    case Follow::kShiftLeft:
    case Follow::kShiftRight: {
      const Alias<uint32_t>* const by = warp.in<uint32_t>(i.operands[2]);
      const Bytes amount = of(i.operands[2]);
      each([&](size_t lane) {
        const uint32_t bytes = std::min<uint32_t>(by[lane] / 8, 8);
        const uint32_t moved =
            i.undefined == Follow::kShiftLeft ? uint32_t{first[lane]} << bytes : first[lane] >> bytes;
        return amount[lane] != 0 || (by[lane] % 8 != 0 && first[lane] != 0) ? 0xffU : moved;
      });
      return result;
    }
    case Follow::kAll: break;
  }
  for (size_t input = i.outputs; input < i.operand_count; ++input) {
    const Bytes bytes = of(i.operands[input]);
    each([&](size_t lane) { return result[lane] | (bytes[lane] != 0 ? 0xff : 0); });
  }
  return result;
}

void Undefined::follow(Warp& warp, const Instruction& i, uint32_t mask) {
  if (i.access_bytes != 0) {
    return;  // loads and stores do it themselves
  }
  uint32_t origin = i.index;
  for (size_t input = i.outputs; input < i.operand_count; ++input) {
    if (const Register* const found = find(i.operands[input]); found != nullptr) {
      origin = found->origin;
    }
  }
  std::array<Bytes, 6> results;
  for (size_t output = 0; output < i.outputs; ++output) {
    results[output] = of_result(warp, i, output, mask);
  }
  for (size_t output = 0; output < i.outputs; ++output) {
    set(i.operands[output], mask, results[output], origin);
  }
}

}  // namespace virtual_gpu

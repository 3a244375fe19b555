#include "virtual_gpu/lanes.h"
#include "virtual_gpu/opcode.h"

// Integers longer than a register: add.cc, addc, sub.cc, subc, mad.cc, madc. The carry of a lane is a bit of the warp.

namespace virtual_gpu {

namespace {

template <class T>
using Longer = std::conditional_t<sizeof(T) == 4, uint64_t, Unsigned128>;

template <class T>
struct Result {
  T value;
  bool carry;
};

/// Calls `compute(lane, carry)` for each lane and keeps the carry it gives where the opcode says ".cc".
template <class T, bool kIn, bool kOut, class Compute>
void with_carry(Warp& warp, const Instruction& i, uint32_t mask, Compute compute) {
  Alias<T>* to = warp.out<T>(i.operands[0]);
  for_lanes(mask, [&](int lane) {
    const Result<T> result = compute(lane, kIn ? (warp.carry >> lane) & 1U : 0U);
    to[lane] = result.value;
    if (kOut) {
      warp.carry = (warp.carry & ~(1U << lane)) | (static_cast<uint32_t>(result.carry) << lane);
    }
  });
}

template <class T, bool kIn, bool kOut>
void add(Warp& warp, const Instruction& i, uint32_t mask) {
  const Alias<T>* a = warp.in<T>(i.operands[1]);
  const Alias<T>* b = warp.in<T>(i.operands[2]);
  with_carry<T, kIn, kOut>(warp, i, mask, [&](int lane, uint32_t carry) {
    const Longer<T> sum = Longer<T>{a[lane]} + Longer<T>{b[lane]} + carry;
    return Result<T>{static_cast<T>(sum), (sum >> (8 * sizeof(T))) != 0};
  });
}

template <class T, bool kIn, bool kOut>
void subtract(Warp& warp, const Instruction& i, uint32_t mask) {
  const Alias<T>* a = warp.in<T>(i.operands[1]);
  const Alias<T>* b = warp.in<T>(i.operands[2]);
  with_carry<T, kIn, kOut>(warp, i, mask, [&](int lane, uint32_t borrow) {
    const Longer<T> difference = Longer<T>{a[lane]} - Longer<T>{b[lane]} - borrow;
    return Result<T>{static_cast<T>(difference), (difference >> (8 * sizeof(T))) != 0};
  });
}

template <class T, bool kIn, bool kOut, bool kHigh>
void multiply_add(Warp& warp, const Instruction& i, uint32_t mask) {
  const Alias<T>* a = warp.in<T>(i.operands[1]);
  const Alias<T>* b = warp.in<T>(i.operands[2]);
  const Alias<T>* c = warp.in<T>(i.operands[3]);
  with_carry<T, kIn, kOut>(warp, i, mask, [&](int lane, uint32_t carry) {
    const Longer<T> product = Longer<T>{a[lane]} * Longer<T>{b[lane]};
    const T part = static_cast<T>(kHigh ? product >> (8 * sizeof(T)) : product);
    const Longer<T> sum = Longer<T>{part} + Longer<T>{c[lane]} + carry;
    return Result<T>{static_cast<T>(sum), (sum >> (8 * sizeof(T))) != 0};
  });
}

template <class T, bool kIn, bool kOut>
Choice choose(const Opcode& opcode) {
  const int bytes = sizeof(T);
  if (opcode.name.starts_with("add")) {
    return {add<T, kIn, kOut>, {bytes, bytes, bytes}};
  }
  if (opcode.name.starts_with("sub")) {
    return {subtract<T, kIn, kOut>, {bytes, bytes, bytes}};
  }
  return opcode.has("hi") ? Choice{multiply_add<T, kIn, kOut, true>, {bytes, bytes, bytes, bytes}}
                          : Choice{multiply_add<T, kIn, kOut, false>, {bytes, bytes, bytes, bytes}};
}

template <class T>
Choice choose(const Opcode& opcode, bool in, bool out) {
  if (in) {
    return out ? choose<T, true, true>(opcode) : choose<T, true, false>(opcode);
  }
  return choose<T, false, true>(opcode);
}

}  // namespace

Choice carry_choice(const Opcode& opcode) {
  const bool in = opcode.name == "addc" || opcode.name == "subc" || opcode.name == "madc";
  const bool out = opcode.has("cc");
  const bool known = in || opcode.name == "add" || opcode.name == "sub" || opcode.name == "mad";
  if (!known || (!in && !out)) {
    return {};
  }
  switch (bytes_of(opcode.type())) {
    case 4: return choose<uint32_t>(opcode, in, out);
    case 8: return choose<uint64_t>(opcode, in, out);
    default: return {};
  }
}

}  // namespace virtual_gpu

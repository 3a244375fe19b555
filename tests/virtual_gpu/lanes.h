#pragma once

#include "virtual_gpu/warp.h"

// The loops over 32 lanes that most instructions are: the compiler makes vectors of them. A lane that is not in the
// mask computes as well, and what it computed is dropped.

namespace virtual_gpu {

__extension__ using Signed128 = __int128;
__extension__ using Unsigned128 = unsigned __int128;

/// `lane` of the operands is read and written by itself alone, so that results may lie where operands lay.
#define VIRTUAL_GPU_LANES _Pragma("GCC ivdep") for (int lane = 0; lane < kLanes; ++lane)

/// Writes `value(lane)` into the lanes of `mask`.
template <class R, class Value>
[[gnu::always_inline]] inline void write_lanes(Alias<R>* to, uint32_t mask, Value value) {
  if (mask == kAllLanes) {
    VIRTUAL_GPU_LANES {
      to[lane] = value(lane);
    }
  } else {
    VIRTUAL_GPU_LANES {
      const R result = value(lane);
      to[lane] = ((mask >> lane) & 1U) != 0 ? result : static_cast<R>(to[lane]);
    }
  }
}

/// The bits of the lanes for which `condition(lane)` holds.
template <class Condition>
[[gnu::always_inline]] inline uint32_t lanes_where(Condition condition) {
  uint32_t bits = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    bits |= condition(lane) ? uint32_t{1} << lane : 0U;
  }
  return bits;
}

template <class Op, class R, class A>
void unary(Warp& warp, const Instruction& i, uint32_t mask) {
  const Alias<A>* a = warp.in<A>(i.operands[1]);
  write_lanes<R>(warp.out<R>(i.operands[0]), mask, [&](int lane) { return Op::apply(static_cast<A>(a[lane])); });
}

template <class Op, class R, class A, class B>
void binary(Warp& warp, const Instruction& i, uint32_t mask) {
  const Alias<A>* a = warp.in<A>(i.operands[1]);
  const Alias<B>* b = warp.in<B>(i.operands[2]);
  write_lanes<R>(warp.out<R>(i.operands[0]), mask,
                 [&](int lane) { return Op::apply(static_cast<A>(a[lane]), static_cast<B>(b[lane])); });
}

template <class Op, class R, class A, class B, class C>
void ternary(Warp& warp, const Instruction& i, uint32_t mask) {
  const Alias<A>* a = warp.in<A>(i.operands[1]);
  const Alias<B>* b = warp.in<B>(i.operands[2]);
  const Alias<C>* c = warp.in<C>(i.operands[3]);
  write_lanes<R>(warp.out<R>(i.operands[0]), mask, [&](int lane) {
    return Op::apply(static_cast<A>(a[lane]), static_cast<B>(b[lane]), static_cast<C>(c[lane]));
  });
}

}  // namespace virtual_gpu

#include "virtual_gpu/float.h"
#include "virtual_gpu/lanes.h"
#include "virtual_gpu/opcode.h"

// setp and selp. A predicate of a warp is one word.

namespace virtual_gpu {

namespace {

struct Equal {
  template <class T>
  static bool apply(T a, T b) {
    return a == b;
  }
};
struct NotEqual {  // of numbers only: ordered
  template <class T>
  static bool apply(T a, T b) {
    return a < b || a > b;
  }
};
struct Less {
  template <class T>
  static bool apply(T a, T b) {
    return a < b;
  }
};
struct LessEqual {
  template <class T>
  static bool apply(T a, T b) {
    return a <= b;
  }
};
struct Greater {
  template <class T>
  static bool apply(T a, T b) {
    return a > b;
  }
};
struct GreaterEqual {
  template <class T>
  static bool apply(T a, T b) {
    return a >= b;
  }
};
struct Numbers {
  template <class T>
  static bool apply(T a, T b) {
    return a == a && b == b;
  }
};
/// Holds where `Ordered` does not, which it never does beside NaN.
template <class Ordered>
struct Otherwise {
  template <class T>
  static bool apply(T a, T b) {
    return !Ordered::apply(a, b);
  }
};

/// How the result of a comparison meets a third operand: `immediate` of the instruction.
enum Combine : uint64_t { kAlone, kAnd, kOr, kXor };

uint32_t combined(uint64_t how, uint32_t bits, uint32_t other) {
  return how == kAnd ? bits & other : how == kOr ? bits | other : bits ^ other;
}

template <class Op, class T, bool kFlush>
void compare(Warp& warp, const Instruction& i, uint32_t mask) {
  const Alias<T>* a = warp.in<T>(i.operands[i.outputs]);
  const Alias<T>* b = warp.in<T>(i.operands[i.outputs + 1]);
  uint32_t bits = 0;
  if constexpr (kFlush) {
    bits = lanes_where(
        [&](int l) { return Op::apply(flushed<true>(static_cast<T>(a[l])), flushed<true>(static_cast<T>(b[l]))); });
  } else {
    bits = lanes_where([&](int lane) { return Op::apply(static_cast<T>(a[lane]), static_cast<T>(b[lane])); });
  }
  uint32_t inverse = ~bits;
  if (i.immediate != kAlone) {
    const uint32_t other = warp.predicate(i.operands[i.outputs + 2]);
    bits = combined(i.immediate, bits, other);
    inverse = combined(i.immediate, inverse, other);
  }
  warp.set_predicate(i.operands[0], bits, mask);
  if (i.outputs == 2) {
    warp.set_predicate(i.operands[1], inverse, mask);
  }
}

template <class T, bool kFlush>
Handler by_comparison(std::string_view name) {
  constexpr bool kFloat = std::is_floating_point_v<T>;
  if (name == "eq") {
    return compare<Equal, T, kFlush>;
  }
  if (name == "ne") {
    return compare<NotEqual, T, kFlush>;
  }
  if (name == "lt" || name == "lo") {
    return compare<Less, T, kFlush>;
  }
  if (name == "le" || name == "ls") {
    return compare<LessEqual, T, kFlush>;
  }
  if (name == "gt" || name == "hi") {
    return compare<Greater, T, kFlush>;
  }
  if (name == "ge" || name == "hs") {
    return compare<GreaterEqual, T, kFlush>;
  }
  if constexpr (kFloat) {
    if (name == "equ") {
      return compare<Otherwise<NotEqual>, T, kFlush>;
    }
    if (name == "neu") {
      return compare<Otherwise<Equal>, T, kFlush>;
    }
    if (name == "ltu") {
      return compare<Otherwise<GreaterEqual>, T, kFlush>;
    }
    if (name == "leu") {
      return compare<Otherwise<Greater>, T, kFlush>;
    }
    if (name == "gtu") {
      return compare<Otherwise<LessEqual>, T, kFlush>;
    }
    if (name == "geu") {
      return compare<Otherwise<Less>, T, kFlush>;
    }
    if (name == "num") {
      return compare<Numbers, T, kFlush>;
    }
    if (name == "nan") {
      return compare<Otherwise<Numbers>, T, kFlush>;
    }
  }
  return nullptr;
}

Handler comparison(const Opcode& opcode) {
  const std::string_view name = opcode.modifiers.front();
  switch (opcode.type()) {
    case Type::kB16:
    case Type::kU16: return by_comparison<uint16_t, false>(name);
    case Type::kB32:
    case Type::kU32: return by_comparison<uint32_t, false>(name);
    case Type::kB64:
    case Type::kU64: return by_comparison<uint64_t, false>(name);
    case Type::kS16: return by_comparison<int16_t, false>(name);
    case Type::kS32: return by_comparison<int32_t, false>(name);
    case Type::kS64: return by_comparison<int64_t, false>(name);
    case Type::kF32: return opcode.has("ftz") ? by_comparison<float, true>(name) : by_comparison<float, false>(name);
    case Type::kF64: return by_comparison<double, false>(name);
    default: return nullptr;
  }
}

template <class T>
void select(Warp& warp, const Instruction& i, uint32_t mask) {
  const Alias<T>* a = warp.in<T>(i.operands[1]);
  const Alias<T>* b = warp.in<T>(i.operands[2]);
  const uint32_t first = warp.predicate(i.operands[3]);
  write_lanes<T>(warp.out<T>(i.operands[0]), mask, [&](int lane) {
    const T x = a[lane];
    const T y = b[lane];
    return ((first >> lane) & 1U) != 0 ? x : y;
  });
}

}  // namespace

/// `operand_count` counts "p|q" as two.
Choice compare_choice(const Opcode& opcode, int operand_count) {
  if (opcode.name == "selp") {
    switch (bytes_of(opcode.type())) {
      case 2: return {select<uint16_t>, {2, 2, 2, 0}};
      case 4: return {select<uint32_t>, {4, 4, 4, 0}};
      case 8: return {select<uint64_t>, {8, 8, 8, 0}};
      default: return {};
    }
  }
  if (opcode.name != "setp" || opcode.types.size() != 1 || opcode.modifiers.size() < 2) {
    return {};
  }
  const Handler run = comparison(opcode);
  const uint64_t combine = opcode.has("and") ? kAnd : opcode.has("or") ? kOr : opcode.has("xor") ? kXor : kAlone;
  const int bytes = bytes_of(opcode.type());
  const int outputs = operand_count - (combine == kAlone ? 2 : 3);
  Choice choice;
  if (outputs == 1) {
    choice = combine == kAlone ? Choice{run, {0, bytes, bytes}} : Choice{run, {0, bytes, bytes, 0}};
  } else if (outputs == 2) {
    choice = combine == kAlone ? Choice{run, {0, 0, bytes, bytes}} : Choice{run, {0, 0, bytes, bytes, 0}};
  }
  choice.outputs = outputs;
  choice.immediate = combine;
  return choice;
}

}  // namespace virtual_gpu

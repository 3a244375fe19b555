#include "virtual_gpu/lanes.h"
#include "virtual_gpu/opcode.h"

#include <algorithm>
#include <bit>

// Logic, shifts and fields of bits; logic of predicates.

namespace virtual_gpu {

namespace {

struct And {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct Not {
  template <class T>
  static T apply(T a) {
    return static_cast<T>(~a);
  }
};
struct CNot {
  template <class T>
  static T apply(T a) {
    return a == 0 ? T{1} : T{0};
  }
};
/// A shift by as many bits as there are, or more, leaves none.
struct ShiftLeft {
  template <class T>
  static T apply(T a, uint32_t by) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    return by >= kBits ? T{0} : static_cast<T>(a << (by & (kBits - 1)));
  }
};
struct ShiftRight {
  template <class T>
  static T apply(T a, uint32_t by) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    if constexpr (std::is_signed_v<T>) {
      return static_cast<T>(a >> (by < kBits ? by : kBits - 1));
    } else {
      return by >= kBits ? T{0} : static_cast<T>(a >> (by & (kBits - 1)));
    }
  }
};
struct CountLeadingZeros {
  template <class T>
  static uint32_t apply(T a) {
    return static_cast<uint32_t>(std::countl_zero(a));
  }
};
struct CountOnes {
  template <class T>
  static uint32_t apply(T a) {
    return static_cast<uint32_t>(std::popcount(a));
  }
};
struct ReverseBits {
  template <class T>
  static T apply(T a) {
    T result = 0;
    for (size_t bit = 0; bit < 8 * sizeof(T); ++bit) {
      result = static_cast<T>((result << 1U) | ((a >> bit) & 1U));
    }
    return result;
  }
};

/// The position of the highest bit that differs from the sign, or all ones; with ".shiftamt" its distance to the top.
template <class T, bool kShift>
struct FindHighest {
  static uint32_t apply(T a) {
    using U = std::make_unsigned_t<T>;
    U bits = static_cast<U>(a);
    if constexpr (std::is_signed_v<T>) {
      bits = a < 0 ? static_cast<U>(~bits) : bits;
    }
    if (bits == 0) {
      return 0xffffffff;
    }
    const uint32_t zeros = static_cast<uint32_t>(std::countl_zero(bits));
    return kShift ? zeros : static_cast<uint32_t>(8 * sizeof(T)) - 1 - zeros;
  }
};

/// Replaces `length` bits of `base` from `position` on by the low bits of `field`.
template <class T>
void insert_field(Warp& warp, const Instruction& i, uint32_t mask) {
  const Alias<T>* field = warp.in<T>(i.operands[1]);
  const Alias<T>* base = warp.in<T>(i.operands[2]);
  const Alias<uint32_t>* position = warp.in<uint32_t>(i.operands[3]);
  const Alias<uint32_t>* length = warp.in<uint32_t>(i.operands[4]);
  write_lanes<T>(warp.out<T>(i.operands[0]), mask, [&](int lane) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    const uint32_t at = position[lane] & 0xff;
    const uint32_t bits = length[lane] & 0xff;
    const T ones = bits >= kBits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << (bits & (kBits - 1))) - 1);
    const T place = ShiftLeft::apply(ones, at);
    return static_cast<T>((base[lane] & ~place) | (ShiftLeft::apply(static_cast<T>(field[lane]), at) & place));
  });
}

/// `length` bits of a value from `position` on; the signed form repeats the highest of them.
template <class T>
struct ExtractField {
  static T apply(T a, uint32_t position, uint32_t length) {
    constexpr uint32_t kBits = 8 * sizeof(T);
    using U = std::make_unsigned_t<T>;
    const uint32_t at = position & 0xff;
    const uint32_t bits = length & 0xff;
    if (bits == 0) {
      return 0;
    }
    const U ones = bits >= kBits ? static_cast<U>(~U{0}) : static_cast<U>((U{1} << (bits & (kBits - 1))) - 1);
    U result = static_cast<U>(ShiftRight::apply(static_cast<U>(a), at) & ones);
    if constexpr (std::is_signed_v<T>) {
      const uint32_t highest = std::min(at + bits - 1, kBits - 1);
      if (((static_cast<U>(a) >> highest) & 1U) != 0) {
        const uint32_t kept = at >= kBits ? 0 : std::min(bits, kBits - at);
        result |= ShiftLeft::apply(static_cast<U>(~U{0}), kept);
      }
    }
    return static_cast<T>(result);
  }
};

/// The bytes of a and b that the four low digits of the selector name; a digit of 8 and more repeats the byte's sign.
struct Permute {
  static uint32_t apply(uint32_t a, uint32_t b, uint32_t selector) {
    const uint64_t bytes = (uint64_t{b} << 32U) | a;
    uint32_t result = 0;
    for (uint32_t k = 0; k < 4; ++k) {
      const uint32_t digit = (selector >> (4 * k)) & 0xf;
      uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (digit & 7))) & 0xff;
      if ((digit & 8) != 0) {
        byte = (byte & 0x80) != 0 ? 0xff : 0;
      }
      result |= byte << (8 * k);
    }
    return result;
  }
};

/// Shifts the 64 bits of b (high) and a (low) and keeps one half.
template <bool kLeft, bool kClamp>
struct Funnel {
  static uint32_t apply(uint32_t a, uint32_t b, uint32_t by) {
    const uint64_t both = (uint64_t{b} << 32U) | a;
    const uint32_t n = kClamp ? std::min(by, 32U) : by & 31U;
    return static_cast<uint32_t>(kLeft ? (both << n) >> 32U : both >> n);
  }
};

/// Any function of three bits: the table has its value for each of them.
void logic3(Warp& warp, const Instruction& i, uint32_t mask) {
  const Alias<uint32_t>* a = warp.in<uint32_t>(i.operands[1]);
  const Alias<uint32_t>* b = warp.in<uint32_t>(i.operands[2]);
  const Alias<uint32_t>* c = warp.in<uint32_t>(i.operands[3]);
  const uint32_t table = *warp.in<uint32_t>(i.operands[4]);
  write_lanes<uint32_t>(warp.out<uint32_t>(i.operands[0]), mask, [&](int lane) {
    uint32_t result = 0;
    for (uint32_t k = 0; k < 8; ++k) {
      const uint32_t term = ((k & 4) != 0 ? a[lane] : ~a[lane]) & ((k & 2) != 0 ? b[lane] : ~b[lane]) &
                            ((k & 1) != 0 ? c[lane] : ~c[lane]);
      result |= ((table >> k) & 1U) != 0 ? term : 0U;
    }
    return result;
  });
}

template <class Op>
void of_predicates(Warp& warp, const Instruction& i, uint32_t mask) {
  warp.set_predicate(i.operands[0], Op::apply(warp.predicate(i.operands[1]), warp.predicate(i.operands[2])), mask);
}

void not_predicate(Warp& warp, const Instruction& i, uint32_t mask) {
  warp.set_predicate(i.operands[0], ~warp.predicate(i.operands[1]), mask);
}

template <class Op>
Choice logic(const Opcode& opcode) {
  switch (bytes_of(opcode.type())) {
    case 0: return {of_predicates<Op>, {0, 0, 0}};
    case 2: return {binary<Op, uint16_t, uint16_t, uint16_t>, {2, 2, 2}};
    case 4: return {binary<Op, uint32_t, uint32_t, uint32_t>, {4, 4, 4}};
    case 8: return {binary<Op, uint64_t, uint64_t, uint64_t>, {8, 8, 8}};
    default: return {};
  }
}

template <class Op>
Choice inverse(const Opcode& opcode) {
  switch (bytes_of(opcode.type())) {
    case 2: return {unary<Op, uint16_t, uint16_t>, {2, 2}};
    case 4: return {unary<Op, uint32_t, uint32_t>, {4, 4}};
    case 8: return {unary<Op, uint64_t, uint64_t>, {8, 8}};
    default: return {};
  }
}

template <class Op, class T>
Choice shift() {
  const int bytes = sizeof(T);
  return {binary<Op, T, T, uint32_t>, {bytes, bytes, 4}};
}

Choice shift_choice(const Opcode& opcode) {
  const bool left = opcode.name == "shl";
  switch (opcode.type()) {
    case Type::kB16:
    case Type::kU16: return left ? shift<ShiftLeft, uint16_t>() : shift<ShiftRight, uint16_t>();
    case Type::kB32:
    case Type::kU32: return left ? shift<ShiftLeft, uint32_t>() : shift<ShiftRight, uint32_t>();
    case Type::kB64:
    case Type::kU64: return left ? shift<ShiftLeft, uint64_t>() : shift<ShiftRight, uint64_t>();
    case Type::kS16: return left ? Choice{} : shift<ShiftRight, int16_t>();
    case Type::kS32: return left ? Choice{} : shift<ShiftRight, int32_t>();
    case Type::kS64: return left ? Choice{} : shift<ShiftRight, int64_t>();
    default: return {};
  }
}

template <class Op>
Choice count(const Opcode& opcode) {
  switch (bytes_of(opcode.type())) {
    case 4: return {unary<Op, uint32_t, uint32_t>, {4, 4}};
    case 8: return {unary<Op, uint32_t, uint64_t>, {4, 8}};
    default: return {};
  }
}

template <class T>
Choice highest(const Opcode& opcode) {
  const int bytes = sizeof(T);
  return opcode.has("shiftamt") ? Choice{unary<FindHighest<T, true>, uint32_t, T>, {4, bytes}}
                                : Choice{unary<FindHighest<T, false>, uint32_t, T>, {4, bytes}};
}

Choice field_choice(const Opcode& opcode) {
  if (opcode.name == "bfi") {
    return bytes_of(opcode.type()) == 4 ? Choice{insert_field<uint32_t>, {4, 4, 4, 4, 4}}
                                        : Choice{insert_field<uint64_t>, {8, 8, 8, 4, 4}};
  }
  const bool extract = opcode.name == "bfe";
  switch (opcode.type()) {
    case Type::kU32:
      return extract ? Choice{ternary<ExtractField<uint32_t>, uint32_t, uint32_t, uint32_t, uint32_t>, {4, 4, 4, 4}}
                     : highest<uint32_t>(opcode);
    case Type::kS32:
      return extract ? Choice{ternary<ExtractField<int32_t>, int32_t, int32_t, uint32_t, uint32_t>, {4, 4, 4, 4}}
                     : highest<int32_t>(opcode);
    case Type::kU64:
      return extract ? Choice{ternary<ExtractField<uint64_t>, uint64_t, uint64_t, uint32_t, uint32_t>, {8, 8, 4, 4}}
                     : highest<uint64_t>(opcode);
    case Type::kS64:
      return extract ? Choice{ternary<ExtractField<int64_t>, int64_t, int64_t, uint32_t, uint32_t>, {8, 8, 4, 4}}
                     : highest<int64_t>(opcode);
    default: return {};
  }
}

template <bool kLeft>
Choice funnel(const Opcode& opcode) {
  return opcode.has("clamp")
             ? Choice{ternary<Funnel<kLeft, true>, uint32_t, uint32_t, uint32_t, uint32_t>, {4, 4, 4, 4}}
             : Choice{ternary<Funnel<kLeft, false>, uint32_t, uint32_t, uint32_t, uint32_t>, {4, 4, 4, 4}};
}

}  // namespace

Choice bits_choice(const Opcode& opcode) {
  const std::string_view name = opcode.name;
  if (name == "and") {
    return logic<And>(opcode);
  }
  if (name == "or") {
    return logic<Or>(opcode);
  }
  if (name == "xor") {
    return logic<Xor>(opcode);
  }
  if (name == "not") {
    return opcode.type() == Type::kPred ? Choice{not_predicate, {0, 0}} : inverse<Not>(opcode);
  }
  if (name == "cnot") {
    return inverse<CNot>(opcode);
  }
  if (name == "shl" || name == "shr") {
    return shift_choice(opcode);
  }
  if (name == "clz") {
    return count<CountLeadingZeros>(opcode);
  }
  if (name == "popc") {
    return count<CountOnes>(opcode);
  }
  if (name == "brev") {
    return inverse<ReverseBits>(opcode);
  }
  if (name == "bfi" || name == "bfe" || name == "bfind") {
    return field_choice(opcode);
  }
  if (name == "prmt" && opcode.text == "prmt.b32") {
    return {ternary<Permute, uint32_t, uint32_t, uint32_t, uint32_t>, {4, 4, 4, 4}};
  }
  if (name == "shf") {
    return opcode.has("l") ? funnel<true>(opcode) : funnel<false>(opcode);
  }
  if (name == "lop3" && opcode.text == "lop3.b32") {
    return {logic3, {4, 4, 4, 4, 4}};
  }
  return {};
}

}  // namespace virtual_gpu

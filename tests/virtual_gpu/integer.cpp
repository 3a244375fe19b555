#include "virtual_gpu/lanes.h"
#include "virtual_gpu/opcode.h"

#include <algorithm>
#include <limits>
#include <type_traits>

// add, sub, mul, mad, div, rem, min, max, neg, abs of integers. Sums wrap around, as unsigned ones.

namespace virtual_gpu {

namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

/// Arithmetic of T without promotion to int, and without undefined overflow.
template <class T>
using Wide = std::conditional_t<(sizeof(T) < 4), uint32_t, Unsigned<T>>;

struct Add {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wide<T>>(a) + static_cast<Wide<T>>(b));
  }
};
struct Subtract {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wide<T>>(a) - static_cast<Wide<T>>(b));
  }
};
struct MultiplyLow {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b));
  }
};
struct MultiplyAddLow {
  template <class T>
  static T apply(T a, T b, T c) {
    return static_cast<T>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b) + static_cast<Wide<T>>(c));
  }
};

template <class T>
struct Double;
template <>
struct Double<uint16_t> {
  using type = uint32_t;
};
template <>
struct Double<int16_t> {
  using type = int32_t;
};
template <>
struct Double<uint32_t> {
  using type = uint64_t;
};
template <>
struct Double<int32_t> {
  using type = int64_t;
};
template <>
struct Double<uint64_t> {
  using type = Unsigned128;
};
template <>
struct Double<int64_t> {
  using type = Signed128;
};

struct MultiplyWide {
  template <class T>
  static typename Double<T>::type apply(T a, T b) {
    using D = typename Double<T>::type;
    return static_cast<D>(static_cast<D>(a) * static_cast<D>(b));
  }
};
struct MultiplyAddWide {
  template <class T>
  static typename Double<T>::type apply(T a, T b, typename Double<T>::type c) {
    return Add::apply(MultiplyWide::apply(a, b), c);
  }
};
struct MultiplyHigh {
  template <class T>
  static T apply(T a, T b) {
    return static_cast<T>(MultiplyWide::apply(a, b) >> (8 * sizeof(T)));
  }
};
struct MultiplyAddHigh {
  template <class T>
  static T apply(T a, T b, T c) {
    return Add::apply(MultiplyHigh::apply(a, b), c);
  }
};
struct Minimum {
  template <class T>
  static T apply(T a, T b) {
    return a < b ? a : b;
  }
};
struct Maximum {
  template <class T>
  static T apply(T a, T b) {
    return a > b ? a : b;
  }
};
struct Negate {
  template <class T>
  static T apply(T a) {
    return static_cast<T>(Wide<T>{0} - static_cast<Wide<T>>(a));
  }
};
struct Absolute {
  template <class T>
  static T apply(T a) {
    return a < 0 ? Negate::apply(a) : a;
  }
};

/// Division by zero has no result that PTX defines, and the host would stop at it.
template <class T, bool kRemainder>
void divide(Warp& warp, const Instruction& i, uint32_t mask) {
  const Alias<T>* a = warp.in<T>(i.operands[1]);
  const Alias<T>* b = warp.in<T>(i.operands[2]);
  Alias<T>* to = warp.out<T>(i.operands[0]);
  for_lanes(mask & warp.live(), [&](int lane) {
    const T x = a[lane];
    const T y = b[lane];
    if (y == 0) {
      warp.fault(Fault::Kind::kUndefined, i, lane, "a division by zero, whose result PTX does not define");
    }
    if constexpr (std::is_signed_v<T>) {
      if (y == -1) {
        to[lane] = kRemainder ? T{0} : Negate::apply(x);
        return;
      }
    }
    to[lane] = static_cast<T>(kRemainder ? x % y : x / y);
  });
}

template <class Op, class T>
Choice two(int bytes) {
  return {binary<Op, T, T, T>, {bytes, bytes, bytes}};
}

template <class T>
Choice multiply(const Opcode& opcode, int bytes, bool add) {
  if (opcode.has("wide")) {
    if constexpr (sizeof(T) < 8) {
      using D = typename Double<T>::type;
      return add ? Choice{ternary<MultiplyAddWide, D, T, T, D>, {2 * bytes, bytes, bytes, 2 * bytes}}
                 : Choice{binary<MultiplyWide, D, T, T>, {2 * bytes, bytes, bytes}};
    }
    return {};
  }
  if (opcode.has("hi")) {
    return add ? Choice{ternary<MultiplyAddHigh, T, T, T, T>, {bytes, bytes, bytes, bytes}}
               : two<MultiplyHigh, T>(bytes);
  }
  return add ? Choice{ternary<MultiplyAddLow, T, T, T, T>, {bytes, bytes, bytes, bytes}} : two<MultiplyLow, T>(bytes);
}

template <class T>
Choice choose(const Opcode& opcode) {
  const int bytes = sizeof(T);
  const std::string_view name = opcode.name;
  if (opcode.has("cc") || opcode.has("sat")) {
    return {};
  }
  if (name == "add") {
    return two<Add, T>(bytes);
  }
  if (name == "sub") {
    return two<Subtract, T>(bytes);
  }
  if (name == "mul" || name == "mad") {
    return multiply<T>(opcode, bytes, name == "mad");
  }
  if (name == "div") {
    return {divide<T, false>, {bytes, bytes, bytes}};
  }
  if (name == "rem") {
    return {divide<T, true>, {bytes, bytes, bytes}};
  }
  if (name == "min") {
    return two<Minimum, T>(bytes);
  }
  if (name == "max") {
    return two<Maximum, T>(bytes);
  }
  if constexpr (std::is_signed_v<T>) {
    if (name == "neg") {
      return {unary<Negate, T, T>, {bytes, bytes}};
    }
    if (name == "abs") {
      return {unary<Absolute, T, T>, {bytes, bytes}};
    }
  }
  return {};
}

}  // namespace

Choice integer_choice(const Opcode& opcode) {
  switch (opcode.type()) {
    case Type::kU16: return choose<uint16_t>(opcode);
    case Type::kS16: return choose<int16_t>(opcode);
    case Type::kU32: return choose<uint32_t>(opcode);
    case Type::kS32: return choose<int32_t>(opcode);
    case Type::kU64: return choose<uint64_t>(opcode);
    case Type::kS64: return choose<int64_t>(opcode);
    default: return {};
  }
}

}  // namespace virtual_gpu

#include "virtual_gpu/float.h"
#include "virtual_gpu/half.h"
#include "virtual_gpu/lanes.h"
#include "virtual_gpu/opcode.h"

#include <cmath>
#include <limits>

// cvt. A register may be wider than the type that cvt names: the source's low bits count, and a result is extended to
// the register by its own sign.

namespace virtual_gpu {

namespace {

template <class To>
struct Cast {
  template <class From>
  static To apply(From x) {
    return static_cast<To>(x);
  }
};

/// Integers of any size within registers of any size. `immediate` has the bits that the source does not have, the bits
/// that the result does not have, and whether each is signed.
template <class To, class From>
void resize(Warp& warp, const Instruction& i, uint32_t mask) {
  const uint32_t from_spare = i.immediate & 0xff;
  const uint32_t to_spare = (i.immediate >> 8U) & 0xff;
  const bool from_signed = ((i.immediate >> 16U) & 1U) != 0;
  const bool to_signed = ((i.immediate >> 17U) & 1U) != 0;
  const Alias<From>* a = warp.in<From>(i.operands[1]);
  write_lanes<To>(warp.out<To>(i.operands[0]), mask, [&](int lane) {
    const uint64_t high = uint64_t{a[lane]} << from_spare;
    const uint64_t value =
        from_signed ? static_cast<uint64_t>(static_cast<int64_t>(high) >> from_spare) : high >> from_spare;
    const uint64_t cut = value << to_spare;
    return static_cast<To>(to_signed ? static_cast<uint64_t>(static_cast<int64_t>(cut) >> to_spare) : cut >> to_spare);
  });
}

template <class To>
Choice resize_to(int from_bytes) {
  const int to_bytes = sizeof(To);
  switch (from_bytes) {
    case 2: return {resize<To, uint16_t>, {to_bytes, 2}};
    case 4: return {resize<To, uint32_t>, {to_bytes, 4}};
    case 8: return {resize<To, uint64_t>, {to_bytes, 8}};
    default: return {};
  }
}

Choice integer_to_integer(Type to, Type from, int to_bytes, int from_bytes) {
  if (to == Type::kS64 && from == Type::kS32 && from_bytes == 4) {
    return {unary<Cast<int64_t>, int64_t, int32_t>, {8, 4}};
  }
  if (to == Type::kU64 && from == Type::kU32 && from_bytes == 4) {
    return {unary<Cast<uint64_t>, uint64_t, uint32_t>, {8, 4}};
  }
  if (to == Type::kU32 && from == Type::kU64 && to_bytes == 4) {
    return {unary<Cast<uint32_t>, uint32_t, uint64_t>, {4, 8}};
  }
  Choice choice = to_bytes == 2   ? resize_to<uint16_t>(from_bytes)
                  : to_bytes == 4 ? resize_to<uint32_t>(from_bytes)
                                  : resize_to<uint64_t>(from_bytes);
  choice.immediate = static_cast<uint64_t>(64 - 8 * bytes_of(from)) |
                     static_cast<uint64_t>(64 - 8 * bytes_of(to)) << 8U | uint64_t{is_signed(from)} << 16U |
                     uint64_t{is_signed(to)} << 17U;
  return choice;
}

/// To a whole number: ".rni" to the nearest (ties to even), ".rzi" towards zero, ".rmi" down, ".rpi" up.
template <Rounding kRounding, class F>
F whole(F x) {
  switch (kRounding) {
    case Rounding::kZero: return std::trunc(x);
    case Rounding::kDown: return std::floor(x);
    case Rounding::kUp: return std::ceil(x);
    default:
      return std::is_same_v<F, float> ? static_cast<F>(__builtin_rintf(static_cast<float>(x))) : __builtin_rint(x);
  }
}

template <Rounding kRounding, bool kFlush, bool kSaturate>
struct Whole {
  template <class F>
  static F apply(F x) {
    const F result = canonical(whole<kRounding>(flushed<kFlush>(x)));
    if constexpr (kSaturate) {
      return result > F{0} ? (result < F{1} ? result : F{1}) : F{0};
    }
    return result;
  }
};

/// What lies outside an integer's range becomes its end. NaN becomes 0, or, where one of the two has 64 bits, the
/// highest bit alone.
template <class To, Rounding kRounding, bool kFlush>
struct ToInteger {
  template <class F>
  static To apply(F x) {
    const F value = whole<kRounding>(flushed<kFlush>(x));
    constexpr bool kLong = sizeof(F) == 8 || sizeof(To) == 8;
    const To nan = kLong ? static_cast<To>(To{1} << (8 * sizeof(To) - 1)) : To{0};
    constexpr F kAbove = static_cast<F>(std::is_signed_v<To> ? uint64_t{1} << (8 * sizeof(To) - 1)
                                                             : uint64_t{1} << (8 * sizeof(To) - 1)) *
                         (std::is_signed_v<To> ? F{1} : F{2});
    constexpr F kLowest = std::is_signed_v<To> ? -kAbove : F{0};
    const bool inside = value >= kLowest && value < kAbove;
    const To converted = static_cast<To>(inside ? value : F{0});
    const To end = value < kLowest ? std::numeric_limits<To>::min() : std::numeric_limits<To>::max();
    return x != x ? nan : inside ? converted : end;
  }
};

template <class F, Rounding kRounding, bool kFlush>
Choice float_to_integer(Type to, int to_bytes) {
  const int from_bytes = sizeof(F);
  Choice choice;
  switch (to) {
    case Type::kS16: choice = {unary<ToInteger<int16_t, kRounding, kFlush>, int16_t, F>, {2, from_bytes}}; break;
    case Type::kU16: choice = {unary<ToInteger<uint16_t, kRounding, kFlush>, uint16_t, F>, {2, from_bytes}}; break;
    case Type::kS32: choice = {unary<ToInteger<int32_t, kRounding, kFlush>, int32_t, F>, {4, from_bytes}}; break;
    case Type::kU32: choice = {unary<ToInteger<uint32_t, kRounding, kFlush>, uint32_t, F>, {4, from_bytes}}; break;
    case Type::kS64: choice = {unary<ToInteger<int64_t, kRounding, kFlush>, int64_t, F>, {8, from_bytes}}; break;
    case Type::kU64: choice = {unary<ToInteger<uint64_t, kRounding, kFlush>, uint64_t, F>, {8, from_bytes}}; break;
    default: return {};
  }
  return choice.bytes[0] == to_bytes ? choice : Choice{};
}

template <Rounding kRounding>
Choice rounded_to_whole(const Opcode& opcode, Type to, Type from, int to_bytes) {
  const bool flush = opcode.has("ftz");
  const bool saturate = opcode.has("sat");
  if (to == from && to == Type::kF32) {
    return saturate ? Choice{unary<Whole<kRounding, false, true>, float, float>, {4, 4}}
           : flush  ? Choice{unary<Whole<kRounding, true, false>, float, float>, {4, 4}}
                    : Choice{unary<Whole<kRounding, false, false>, float, float>, {4, 4}};
  }
  if (to == from && to == Type::kF64) {
    return saturate ? Choice{} : Choice{unary<Whole<kRounding, false, false>, double, double>, {8, 8}};
  }
  if (is_float(to)) {
    return {};
  }
  if (from == Type::kF32) {
    return flush ? float_to_integer<float, kRounding, true>(to, to_bytes)
                 : float_to_integer<float, kRounding, false>(to, to_bytes);
  }
  return from == Type::kF64 ? float_to_integer<double, kRounding, false>(to, to_bytes) : Choice{};
}

template <class F, class I>
Choice from_integer(int from_bytes) {
  const int to_bytes = sizeof(F);
  return from_bytes == sizeof(I) ? Choice{unary<Cast<F>, F, I>, {to_bytes, from_bytes}} : Choice{};
}

/// An 8-bit integer in a wider register.
template <class F, class I, class Register>
void from_byte(Warp& warp, const Instruction& i, uint32_t mask) {
  const Alias<Register>* a = warp.in<Register>(i.operands[1]);
  write_lanes<F>(warp.out<F>(i.operands[0]), mask, [&](int lane) { return static_cast<F>(static_cast<I>(a[lane])); });
}

template <class F>
Choice integer_to_float(Type from, int from_bytes) {
  const int to_bytes = sizeof(F);
  switch (from) {
    case Type::kU8:
      return from_bytes == 2 ? Choice{from_byte<F, uint8_t, uint16_t>, {to_bytes, 2}}
                             : Choice{from_byte<F, uint8_t, uint32_t>, {to_bytes, 4}};
    case Type::kS8:
      return from_bytes == 2 ? Choice{from_byte<F, int8_t, uint16_t>, {to_bytes, 2}}
                             : Choice{from_byte<F, int8_t, uint32_t>, {to_bytes, 4}};
    case Type::kU16: return from_integer<F, uint16_t>(from_bytes);
    case Type::kS16: return from_integer<F, int16_t>(from_bytes);
    case Type::kU32: return from_integer<F, uint32_t>(from_bytes);
    case Type::kS32: return from_integer<F, int32_t>(from_bytes);
    case Type::kU64: return from_integer<F, uint64_t>(from_bytes);
    case Type::kS64: return from_integer<F, int64_t>(from_bytes);
    default: return {};
  }
}

struct Saturate {
  static float apply(float x) { return x > 0.0F ? (x < 1.0F ? x : 1.0F) : 0.0F; }
};
struct ToBfloat16 {
  static uint16_t apply(float x) { return bfloat16_of_float(x); }
};
struct ToHalf {
  static uint16_t apply(float x) { return half_of_float(x); }
};
struct FromBfloat16 {
  static float apply(uint16_t x) { return canonical(float_of_bfloat16(x)); }
};
struct FromHalf {
  static float apply(uint16_t x) { return float_of_half(x); }
};
template <bool kFlush>
struct Widen {
  static double apply(float x) { return static_cast<double>(flushed<kFlush>(x)); }
};
template <Rounding kRounding, bool kFlush>
struct Narrow {
  static float apply(double x) { return canonical(flushed<kFlush>(rounded<kRounding>(x, 0.0))); }
};
template <class ToSmall>
struct Pair {
  static uint32_t apply(float high, float low) {
    return uint32_t{ToSmall::apply(high)} << 16U | uint32_t{ToSmall::apply(low)};
  }
};

template <bool kFlush>
Choice narrow(const Opcode& opcode) {
  return opcode.has("rz")   ? Choice{unary<Narrow<Rounding::kZero, kFlush>, float, double>, {4, 8}}
         : opcode.has("rm") ? Choice{unary<Narrow<Rounding::kDown, kFlush>, float, double>, {4, 8}}
         : opcode.has("rp") ? Choice{unary<Narrow<Rounding::kUp, kFlush>, float, double>, {4, 8}}
                            : Choice{unary<Narrow<Rounding::kNearest, kFlush>, float, double>, {4, 8}};
}

Choice float_to_float(const Opcode& opcode, Type to, Type from) {
  const bool flush = opcode.has("ftz");
  const bool nearest = opcode.has("rn");
  if (opcode.has("sat") && (to != Type::kF32 || from != Type::kF32)) {
    return {};
  }
  if (to == Type::kF32 && from == Type::kF32) {
    return opcode.has("sat") ? Choice{unary<Saturate, float, float>, {4, 4}} : Choice{};
  }
  if (to == Type::kF64 && from == Type::kF32) {
    return flush ? Choice{unary<Widen<true>, double, float>, {8, 4}}
                 : Choice{unary<Widen<false>, double, float>, {8, 4}};
  }
  if (to == Type::kF32 && from == Type::kF64) {
    return flush ? narrow<true>(opcode) : narrow<false>(opcode);
  }
  if (to == Type::kBf16 && from == Type::kF32 && nearest) {
    return {unary<ToBfloat16, uint16_t, float>, {2, 4}};
  }
  if (to == Type::kF16 && from == Type::kF32 && nearest && !flush) {
    return {unary<ToHalf, uint16_t, float>, {2, 4}};
  }
  if (to == Type::kF32 && from == Type::kBf16 && !flush) {
    return {unary<FromBfloat16, float, uint16_t>, {4, 2}};
  }
  if (to == Type::kF32 && from == Type::kF16) {
    return {unary<FromHalf, float, uint16_t>, {4, 2}};
  }
  return {};
}

}  // namespace

Choice convert_choice(const Opcode& opcode, int to_bytes, int from_bytes) {
  if (opcode.name != "cvt") {
    return {};
  }
  if (opcode.text == "cvt.rn.bf16x2.f32") {
    return {binary<Pair<ToBfloat16>, uint32_t, float, float>, {4, 4, 4}};
  }
  if (opcode.text == "cvt.rn.f16x2.f32") {
    return {binary<Pair<ToHalf>, uint32_t, float, float>, {4, 4, 4}};
  }
  if (opcode.types.size() != 2 || opcode.has("relu")) {
    return {};
  }
  const Type to = opcode.types[0];
  const Type from = opcode.types[1];
  if (opcode.has("rni")) {
    return rounded_to_whole<Rounding::kNearest>(opcode, to, from, to_bytes);
  }
  if (opcode.has("rzi")) {
    return rounded_to_whole<Rounding::kZero>(opcode, to, from, to_bytes);
  }
  if (opcode.has("rmi")) {
    return rounded_to_whole<Rounding::kDown>(opcode, to, from, to_bytes);
  }
  if (opcode.has("rpi")) {
    return rounded_to_whole<Rounding::kUp>(opcode, to, from, to_bytes);
  }
  if (is_float(to) && is_float(from)) {
    return float_to_float(opcode, to, from);
  }
  if (is_float(to)) {
    const bool nearest = opcode.has("rn") && !opcode.has("sat");
    return !nearest           ? Choice{}
           : to == Type::kF32 ? integer_to_float<float>(from, from_bytes)
           : to == Type::kF64 ? integer_to_float<double>(from, from_bytes)
                              : Choice{};
  }
  return is_float(from) || opcode.has("sat") ? Choice{} : integer_to_integer(to, from, to_bytes, from_bytes);
}

}  // namespace virtual_gpu

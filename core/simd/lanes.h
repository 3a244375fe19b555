// Vectors of 64 bytes on every processor, in as many registers as that takes: a sum that is split by lanes has the same
// parts everywhere, and so the same bits wherever multiply_add() rounds once.

// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_CORE_SIMD_LANES_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_CORE_SIMD_LANES_H
#undef NORMA_CORE_SIMD_LANES_H
#else
#define NORMA_CORE_SIMD_LANES_H
#endif

#include "core/simd/targets.h"

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace norma::simd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

static_assert(HWY_TARGET != HWY_SCALAR, "the kernels need a processor with SSE4 or NEON, or GCC 12.3");

/// Numbers in a vector.
template <class T>
inline constexpr int kLanes = 64 / sizeof(T);

/// Highway's name for the widest register of numbers T, up to 64 bytes.
template <class T>
using Tag = hn::CappedTag<T, 64 / sizeof(T)>;
template <class T>
inline constexpr int kRegisterLanes = static_cast<int>(hn::MaxLanes(Tag<T>{}));

/// `n` registers. (Named halves and not an array: GCC keeps them in registers.)
template <class R, int n>
struct Parts {
  Parts<R, n / 2> low;
  Parts<R, n / 2> high;
};
template <class R>
struct Parts<R, 1> {
#if HWY_ARCH_ARM  // where {} leaves Highway's vectors as they are; on x86 it makes them 0
  R only = zeroed();

 private:
  static HWY_INLINE R zeroed() {
    R r;
    std::memset(static_cast<void*>(&r), 0, sizeof(r));
    return r;
  }
#else
  R only;
#endif
};

template <class T>
using Lanes = Parts<hn::Vec<Tag<T>>, kLanes<T> / kRegisterLanes<T>>;
/// A truth value for each lane.
template <class T>
using Mask = Parts<hn::Mask<Tag<T>>, kLanes<T> / kRegisterLanes<T>>;

/// One register, for loops that block by registers and add up nothing across lanes.
template <class T>
using Register = Parts<hn::Vec<Tag<T>>, 1>;

/// Tags of registers of integers as wide as floats.
using Words = hn::Rebind<uint32_t, Tag<float>>;
using SignedWords = hn::Rebind<int32_t, Tag<float>>;

/// The part of a vector that is meant: all lanes, one register's, or the first few.
struct Whole {};
struct OneRegister {};
struct First {
  int count;
};
/// The number of registers that hold a part.
template <class T, class Part = Whole>
inline constexpr int kRegisters = std::is_same_v<Part, OneRegister> ? 1 : kLanes<T> / kRegisterLanes<T>;

// --- lane by lane -----------------------------------------------------------------------------------------------

/// f(register of a, register of the next, …), register by register.
template <class F, class R, int n, class... Others>
HWY_INLINE auto by_register(F f, const Parts<R, n>& a, const Others&... others) {
  if constexpr (n == 1) {
    return Parts<decltype(f(a.only, others.only...)), 1>{f(a.only, others.only...)};
  } else {
    const auto low = by_register(f, a.low, others.low...);
    const auto high = by_register(f, a.high, others.high...);
    using Half = std::remove_const_t<decltype(low)>;
    return [&]<class Q, int m>(const Parts<Q, m>*) HWY_ATTR {
      return Parts<Q, 2 * m>{low, high};
    }(static_cast<const Half*>(nullptr));
  }
}

template <class T, int n = kLanes<T> / kRegisterLanes<T>>
HWY_INLINE auto broadcast(T value) {
  if constexpr (n == 1) {
    return Parts<hn::Vec<Tag<T>>, 1>{hn::Set(Tag<T>{}, value)};
  } else {
    const auto half = broadcast<T, n / 2>(value);
    return Parts<hn::Vec<Tag<T>>, n>{half, half};
  }
}

#define NORMA_SIMD_OPERATOR(SIGN)                                                    \
  template <class R, int n>                                                          \
  HWY_INLINE Parts<R, n> operator SIGN(const Parts<R, n>& a, const Parts<R, n>& b) { \
    if constexpr (n == 1) {                                                          \
      return {a.only SIGN b.only};                                                   \
    } else {                                                                         \
      return {a.low SIGN b.low, a.high SIGN b.high};                                 \
    }                                                                                \
  }                                                                                  \
  template <class R, int n>                                                          \
  HWY_INLINE Parts<R, n> operator SIGN(const Parts<R, n>& a, hn::TFromV<R> b) {      \
    return a SIGN broadcast<hn::TFromV<R>, n>(b);                                    \
  }                                                                                  \
  template <class R, int n>                                                          \
  HWY_INLINE Parts<R, n> operator SIGN(hn::TFromV<R> a, const Parts<R, n>& b) {      \
    return broadcast<hn::TFromV<R>, n>(a) SIGN b;                                    \
  }
NORMA_SIMD_OPERATOR(+)
NORMA_SIMD_OPERATOR(-)
NORMA_SIMD_OPERATOR(*)
NORMA_SIMD_OPERATOR(/)
#undef NORMA_SIMD_OPERATOR

/// Changes the sign of a 0 or a NaN, too.
template <class R, int n>
HWY_INLINE Parts<R, n> operator-(const Parts<R, n>& a) {
  return by_register([](R v) HWY_ATTR { return hn::Neg(v); }, a);
}
template <class R, int n>
HWY_INLINE Parts<R, n>& operator+=(Parts<R, n>& a, const Parts<R, n>& b) {
  return a = a + b;
}
template <class R, int n>
HWY_INLINE Parts<R, n>& operator*=(Parts<R, n>& a, const Parts<R, n>& b) {
  return a = a * b;
}

/// a * b + c: rounded once where that is an instruction, else twice.
template <class R, int n>
HWY_INLINE Parts<R, n> multiply_add(const Parts<R, n>& a, const Parts<R, n>& b, const Parts<R, n>& c) {
  if constexpr (n == 1) {
    return {hn::MulAdd(a.only, b.only, c.only)};
  } else {
    return {multiply_add(a.low, b.low, c.low), multiply_add(a.high, b.high, c.high)};
  }
}

#define NORMA_SIMD_COMPARISON(SIGN, FUNCTION)                                       \
  template <class R, int n>                                                         \
  HWY_INLINE auto operator SIGN(const Parts<R, n>& a, const Parts<R, n>& b) {       \
    return by_register([](R x, R y) HWY_ATTR { return hn::FUNCTION(x, y); }, a, b); \
  }                                                                                 \
  template <class R, int n>                                                         \
  HWY_INLINE auto operator SIGN(const Parts<R, n>& a, hn::TFromV<R> b) {            \
    return a SIGN broadcast<hn::TFromV<R>, n>(b);                                   \
  }
NORMA_SIMD_COMPARISON(<=, Le)
NORMA_SIMD_COMPARISON(<, Lt)
#undef NORMA_SIMD_COMPARISON
template <class R, int n>
HWY_INLINE auto is_nan(const Parts<R, n>& a) {
  return by_register([](R x) HWY_ATTR { return hn::IsNaN(x); }, a);
}
/// Logic of truth values.
template <class M, int n>
HWY_INLINE Parts<M, n> operator&(const Parts<M, n>& a, const Parts<M, n>& b) {
  return by_register([](M x, M y) HWY_ATTR { return hn::And(x, y); }, a, b);
}
template <class M, int n>
HWY_INLINE Parts<M, n> operator|(const Parts<M, n>& a, const Parts<M, n>& b) {
  return by_register([](M x, M y) HWY_ATTR { return hn::Or(x, y); }, a, b);
}

/// condition ? yes : no
template <class M, class R, int n>
HWY_INLINE Parts<R, n> select(const Parts<M, n>& condition, const Parts<R, n>& yes, const Parts<R, n>& no) {
  return by_register([](M c, R x, R y) HWY_ATTR { return hn::IfThenElse(c, x, y); }, condition, yes, no);
}
/// condition ? 0 : no
template <class M, class R, int n>
HWY_INLINE Parts<R, n> zero_where(const Parts<M, n>& condition, const Parts<R, n>& no) {
  return by_register([](M c, R y) HWY_ATTR { return hn::IfThenZeroElse(c, y); }, condition, no);
}

/// Calls f(integral_constant 0), …, f(integral_constant count - 1).
template <int kCount, class F>
HWY_INLINE void unroll(F&& f) {
  [&]<int... i>(std::integer_sequence<int, i...>) NORMA_INLINE {
    (f(std::integral_constant<int, i>{}), ...);
  }
  (std::make_integer_sequence<int, kCount>{});
}

// --- masks ------------------------------------------------------------------------------------------------------

/// True for the first `count` lanes.
template <class T, int n = kLanes<T> / kRegisterLanes<T>>
HWY_INLINE auto first_lanes(int count) {
  using M = hn::Mask<Tag<T>>;
  if constexpr (n == 1) {
    return Parts<M, 1>{hn::FirstN(Tag<T>{}, static_cast<size_t>(count))};
  } else {
    constexpr int kHalf = n / 2 * kRegisterLanes<T>;
    return Parts<M, n>{first_lanes<T, n / 2>(std::min(count, kHalf)),
                       first_lanes<T, n / 2>(std::max(count - kHalf, 0))};
  }
}

/// Lanes from `count` on become 0.
template <class R, int n>
HWY_INLINE Parts<R, n> keep(const Parts<R, n>& value, Whole) {
  return value;
}
template <class R, int n>
HWY_INLINE Parts<R, n> keep(const Parts<R, n>& value, First first) {
  using M = hn::Mask<Tag<hn::TFromV<R>>>;
  return by_register([](M m, R x) HWY_ATTR { return hn::IfThenElseZero(m, x); },
                     first_lanes<hn::TFromV<R>>(first.count), value);
}

/// A bit per lane.
template <class T, class M, int n>
HWY_INLINE uint32_t bits_of(const Parts<M, n>& mask) {
  if constexpr (n == 1) {
    uint8_t bytes[8] = {};
    hn::StoreMaskBits(Tag<T>{}, mask.only, bytes);
    uint32_t bits;
    std::memcpy(&bits, bytes, sizeof(bits));
    return bits;
  } else {
    return bits_of<T>(mask.low) | bits_of<T>(mask.high) << (n / 2 * kRegisterLanes<T>);
  }
}
template <class T, int n = kLanes<T> / kRegisterLanes<T>>
HWY_INLINE auto mask_of(uint32_t bits) {
  using M = hn::Mask<Tag<T>>;
  if constexpr (n == 1) {
    uint8_t bytes[8] = {};
    std::memcpy(bytes, &bits, sizeof(bits));
    return Parts<M, 1>{hn::LoadMaskBits(Tag<T>{}, bytes)};
  } else {
    return Parts<M, n>{mask_of<T, n / 2>(bits), mask_of<T, n / 2>(bits >> (n / 2 * kRegisterLanes<T>))};
  }
}
/// value where a bit is set, else 0.
template <class R, int n>
HWY_INLINE Parts<R, n> where_bits(uint32_t bits, const Parts<R, n>& value) {
  using M = hn::Mask<Tag<hn::TFromV<R>>>;
  return by_register([](M m, R x) HWY_ATTR { return hn::IfThenElseZero(m, x); }, mask_of<hn::TFromV<R>>(bits), value);
}

}  // namespace norma::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

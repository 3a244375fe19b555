// Vectors of 64 bytes on every processor, in as many registers as that takes: a sum that is split by lanes has the same
// parts everywhere, and so the same bits wherever multiply_add() rounds once.

// Included once for each target: see ops/simd/targets.h.
#if defined(NORMA_OPS_SIMD_LANES_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_OPS_SIMD_LANES_H
#undef NORMA_OPS_SIMD_LANES_H
#else
#define NORMA_OPS_SIMD_LANES_H
#endif

#include "core/dtype.h"
#include "core/half.h"
#include "ops/simd/targets.h"

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

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
  R only;
};

template <class T>
using Lanes = Parts<hn::Vec<Tag<T>>, kLanes<T> / kRegisterLanes<T>>;
/// A truth value for each lane.
template <class T>
using Mask = Parts<hn::Mask<Tag<T>>, kLanes<T> / kRegisterLanes<T>>;

/// One register, for loops that block by registers and add up nothing across lanes.
template <class T>
using Register = Parts<hn::Vec<Tag<T>>, 1>;

/// How much of a vector is meant: all lanes, or the first few.
struct Whole {};
struct First {
  int count;
};

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
    return a SIGN broadcast(b);                                                      \
  }                                                                                  \
  template <class R, int n>                                                          \
  HWY_INLINE Parts<R, n> operator SIGN(hn::TFromV<R> a, const Parts<R, n>& b) {      \
    return broadcast(a) SIGN b;                                                      \
  }
NORMA_SIMD_OPERATOR(+)
NORMA_SIMD_OPERATOR(-)
NORMA_SIMD_OPERATOR(*)
NORMA_SIMD_OPERATOR(/)
#undef NORMA_SIMD_OPERATOR

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

template <class R, int n>
HWY_INLINE auto operator<=(const Parts<R, n>& a, const Parts<R, n>& b) {
  return by_register([](R x, R y) HWY_ATTR { return hn::Le(x, y); }, a, b);
}
template <class R, int n>
HWY_INLINE auto operator<(const Parts<R, n>& a, const Parts<R, n>& b) {
  return by_register([](R x, R y) HWY_ATTR { return hn::Lt(x, y); }, a, b);
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

// --- between memory and registers -------------------------------------------------------------------------------

namespace detail {

/// Whether a part of a register can be loaded and stored by one instruction.
#if HWY_CAP_GE256
template <class S>
inline constexpr bool kMaskedMemory = sizeof(S) >= 4 || HWY_CAP_GE512;
#else
template <class S>
inline constexpr bool kMaskedMemory = false;
#endif

/// Copies the first `count` numbers of at most 64 bytes, in pieces of fixed sizes: no loop, no call.
template <class S>
HWY_INLINE void copy_few(S* to, const S* from, int count) {
  const auto* source = reinterpret_cast<const uint8_t*>(from);
  auto* target = reinterpret_cast<uint8_t*>(to);
  const auto piece = [&]<int bytes>(std::integral_constant<int, bytes>) HWY_ATTR {
    if ((count * static_cast<int>(sizeof(S)) & bytes) != 0) {
      std::memcpy(target, source, bytes);
      source += bytes;
      target += bytes;
    }
  };
  piece(std::integral_constant<int, 32>{});
  piece(std::integral_constant<int, 16>{});
  piece(std::integral_constant<int, 8>{});
  piece(std::integral_constant<int, 4>{});
  if constexpr (sizeof(S) == 2) {
    piece(std::integral_constant<int, 2>{});
  }
}

using Bits16 = hn::Rebind<uint16_t, Tag<float>>;
using Words = hn::Rebind<uint32_t, Tag<float>>;
using SignedWords = hn::Rebind<int32_t, Tag<float>>;

HWY_INLINE hn::Vec<Tag<float>> widen(hn::Vec<Bits16> bits, bfloat16) {
  return hn::BitCast(Tag<float>{}, hn::ShiftLeft<16>(hn::PromoteTo(Words{}, bits)));
}
HWY_INLINE hn::Vec<Bits16> narrow(hn::Vec<Tag<float>> value, bfloat16) {
  const auto word = hn::BitCast(Words{}, value);
  const auto upper = hn::ShiftRight<16>(word);
  const auto odd = hn::And(upper, hn::Set(Words{}, 1));
  const auto rounded = hn::ShiftRight<16>(hn::Add(word, hn::Add(odd, hn::Set(Words{}, 0x7FFF))));
  const auto quiet = hn::Or(upper, hn::Set(Words{}, 0x0040));  // a NaN must stay one
  const auto is_nan = hn::RebindMask(Words{}, hn::IsNaN(value));
  return hn::DemoteTo(Bits16{}, hn::BitCast(SignedWords{}, hn::IfThenElse(is_nan, quiet, rounded)));
}

#if HWY_TARGET <= HWY_AVX2 || HWY_TARGET == HWY_NEON
HWY_INLINE hn::Vec<Tag<float>> widen(hn::Vec<Bits16> bits, float16) {
  return hn::PromoteTo(Tag<float>{}, hn::BitCast(hn::Rebind<hwy::float16_t, Tag<float>>{}, bits));
}
HWY_INLINE hn::Vec<Bits16> narrow(hn::Vec<Tag<float>> value, float16) {
  return hn::BitCast(Bits16{}, hn::DemoteTo(hn::Rebind<hwy::float16_t, Tag<float>>{}, value));
}
#else  // Highway's own arithmetic rounds otherwise
HWY_INLINE hn::Vec<Tag<float>> widen(hn::Vec<Bits16> bits, float16) {
  HWY_ALIGN uint16_t from[kRegisterLanes<float>];
  HWY_ALIGN float to[kRegisterLanes<float>];
  hn::Store(bits, Bits16{}, from);
  for (int lane = 0; lane < kRegisterLanes<float>; ++lane) {
    float16 half;
    half.bits = from[lane];
    to[lane] = static_cast<float>(half);
  }
  return hn::Load(Tag<float>{}, to);
}
HWY_INLINE hn::Vec<Bits16> narrow(hn::Vec<Tag<float>> value, float16) {
  HWY_ALIGN float from[kRegisterLanes<float>];
  HWY_ALIGN uint16_t to[kRegisterLanes<float>];
  hn::Store(value, Tag<float>{}, from);
  for (int lane = 0; lane < kRegisterLanes<float>; ++lane) {
    to[lane] = float16(from[lane]).bits;
  }
  return hn::Load(Bits16{}, to);
}
#endif

template <class S, int n>
HWY_INLINE auto load(const S* from) {
  using T = compute_t<S>;
  if constexpr (n > 1) {
    constexpr int kHalf = n / 2 * kRegisterLanes<T>;
    return Parts<hn::Vec<Tag<T>>, n>{load<S, n / 2>(from), load<S, n / 2>(from + kHalf)};
  } else if constexpr (sizeof(S) == 2) {
    const auto bits = hn::LoadU(Bits16{}, reinterpret_cast<const uint16_t*>(from));
    return Parts<hn::Vec<Tag<T>>, 1>{widen(bits, S{})};
  } else {
    return Parts<hn::Vec<Tag<T>>, 1>{hn::LoadU(Tag<T>{}, from)};
  }
}
template <class S, class R, int n>
HWY_INLINE void store(S* to, const Parts<R, n>& value) {
  if constexpr (n > 1) {
    store(to, value.low);
    store(to + n / 2 * kRegisterLanes<compute_t<S>>, value.high);
  } else if constexpr (sizeof(S) == 2) {
    hn::StoreU(narrow(value.only, S{}), Bits16{}, reinterpret_cast<uint16_t*>(to));
  } else {
    hn::StoreU(value.only, Tag<S>{}, to);
  }
}

// A part of a vector. Registers in which there is none are still loaded with an empty mask: that touches no memory.

template <class S, class M, int n>
HWY_INLINE auto load_some(const S* from, const Parts<M, n>& mask) {
  using T = compute_t<S>;
  if constexpr (n > 1) {
    constexpr int kHalf = n / 2 * kRegisterLanes<T>;
    return Parts<hn::Vec<Tag<T>>, n>{load_some(from, mask.low), load_some(from + kHalf, mask.high)};
  } else if constexpr (sizeof(S) == 2) {
    const auto half_words = hn::MaskedLoad(mask.only, Bits16{}, reinterpret_cast<const uint16_t*>(from));
    return Parts<hn::Vec<Tag<T>>, 1>{widen(half_words, S{})};
  } else {
    return Parts<hn::Vec<Tag<T>>, 1>{hn::MaskedLoad(mask.only, Tag<T>{}, from)};
  }
}
template <class S, class M, class R, int n>
HWY_INLINE void store_some(S* to, const Parts<R, n>& value, const Parts<M, n>& mask) {
  if constexpr (n > 1) {
    store_some(to, value.low, mask.low);
    store_some(to + n / 2 * kRegisterLanes<compute_t<S>>, value.high, mask.high);
  } else if constexpr (sizeof(S) == 2) {
    hn::BlendedStore(narrow(value.only, S{}), mask.only, Bits16{}, reinterpret_cast<uint16_t*>(to));
  } else {
    hn::BlendedStore(value.only, mask.only, Tag<S>{}, to);
  }
}

/// The mask with which numbers S are loaded and stored: by what lies in memory.
template <class S>
HWY_INLINE auto memory_mask(int count) {
  if constexpr (sizeof(S) == 2) {
    static_assert(kMaskedMemory<S>, "masks of 16 bits are AVX-512's");
    return Parts<hn::Mask<Bits16>, 1>{hn::FirstN(Bits16{}, static_cast<size_t>(count))};
  } else {
    return first_lanes<S>(count);
  }
}

}  // namespace detail

template <class S>
HWY_INLINE Lanes<compute_t<S>> load(const S* from, Whole) {
  return detail::load<S, kLanes<compute_t<S>> / kRegisterLanes<compute_t<S>>>(from);
}
template <class S>
HWY_INLINE void store(S* to, const Lanes<compute_t<S>>& value, Whole) {
  detail::store(to, value);
}

template <class T>
HWY_INLINE Register<T> load_register(const T* from) {
  return {hn::LoadU(Tag<T>{}, from)};
}
template <class T>
HWY_INLINE void store_register(T* to, const Register<T>& value) {
  hn::StoreU(value.only, Tag<T>{}, to);
}

/// The other lanes become 0. Nothing behind `count` numbers is read or written.
template <class S>
HWY_INLINE Lanes<compute_t<S>> load(const S* from, First first) {
  if constexpr (detail::kMaskedMemory<S>) {
    return detail::load_some(from, detail::memory_mask<S>(first.count));
  } else {
    alignas(64) S some[kLanes<compute_t<S>>] = {};
    detail::copy_few(some, from, first.count);
    return load(static_cast<const S*>(some), Whole{});
  }
}
template <class S>
HWY_INLINE void store(S* to, const Lanes<compute_t<S>>& value, First first) {
  if constexpr (detail::kMaskedMemory<S>) {
    detail::store_some(to, value, detail::memory_mask<S>(first.count));
  } else {
    alignas(64) S some[kLanes<compute_t<S>>];
    store(static_cast<S*>(some), value, Whole{});
    detail::copy_few(to, static_cast<const S*>(some), first.count);
  }
}

/// Calls f(i, how much) for the vectors of a run of `count` numbers of the compute type T.
template <class T, class F>
HWY_INLINE void for_each_lanes(int64_t count, F&& f) {
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    f(i, Whole{});
  }
  if (i < count) {
    f(i, First{static_cast<int>(count - i)});
  }
}

// --- sums of lanes, always in the same order --------------------------------------------------------------------

namespace detail {

/// Lanes i and i + 8 of floats are added up as they are, the rest in double, by halves.
HWY_INLINE Lanes<double> half_sums(const Lanes<double>& v) {
  return v;
}
HWY_INLINE Lanes<double> half_sums(const Lanes<float>& v) {
  constexpr Tag<double> kDouble;
#if HWY_CAP_GE512
  const hn::Half<Tag<float>> half;
  return {hn::PromoteTo(kDouble, hn::Add(hn::LowerHalf(half, v.only), hn::UpperHalf(half, v.only)))};
#elif HWY_CAP_GE256
  const hn::Half<Tag<float>> half;
  const auto sums = hn::Add(v.low.only, v.high.only);
  return {{hn::PromoteTo(kDouble, hn::LowerHalf(half, sums))}, {hn::PromoteTo(kDouble, hn::UpperHalf(half, sums))}};
#else
  const hn::Half<Tag<float>> half;
  const auto promote = [&](hn::Vec<Tag<float>> sums) HWY_ATTR {
    return Parts<hn::Vec<Tag<double>>, 2>{{hn::PromoteTo(kDouble, hn::LowerHalf(half, sums))},
                                          {hn::PromoteTo(kDouble, hn::UpperHalf(half, sums))}};
  };
  return {promote(hn::Add(v.low.low.only, v.high.low.only)), promote(hn::Add(v.low.high.only, v.high.high.only))};
#endif
}

/// Numbers 0 and 1 of the sum of the quarters of a vector.
template <class R, int n>
HWY_INLINE hn::Vec<hn::Full128<double>> add_quarters(const Parts<R, n>& eight) {
  if constexpr (n > 1) {
    const auto half = eight.low + eight.high;
    return add_quarters(half);
  } else {
    if constexpr (hn::MaxLanes(hn::DFromV<R>{}) == 2) {
      return eight.only;
    } else {
      const hn::Half<hn::DFromV<R>> half;
      const auto sum = hn::Add(hn::LowerHalf(half, eight.only), hn::UpperHalf(half, eight.only));
      return add_quarters(Parts<std::remove_const_t<decltype(sum)>, 1>{sum});
    }
  }
}

}  // namespace detail

struct TwoSums {
  double first;
  double second;
};

/// The sums of the lanes of a and of b.
template <class R, int n>
HWY_INLINE TwoSums add_lanes(const Parts<R, n>& a, const Parts<R, n>& b) {
  using V = hn::Vec<Tag<double>>;
  const auto neighbours = by_register(
      [](V x, V y) HWY_ATTR {
        return hn::Add(hn::InterleaveLower(Tag<double>{}, x, y), hn::InterleaveUpper(Tag<double>{}, x, y));
      },
      detail::half_sums(a), detail::half_sums(b));
  const auto two = detail::add_quarters(neighbours);
  const hn::Full128<double> d;
  return {hn::GetLane(two), hn::GetLane(hn::InterleaveUpper(d, two, two))};
}
template <class R, int n>
HWY_INLINE double add_lanes(const Parts<R, n>& v) {
  const auto two = detail::add_quarters(detail::half_sums(v));
  const hn::Full128<double> d;
  return hn::GetLane(two) + hn::GetLane(hn::InterleaveUpper(d, two, two));
}

// --- operands of a run: numbers that vary along it, or one for all ----------------------------------------------

template <class T>
struct Same {
  T value;
  template <class Part>
  HWY_INLINE Lanes<T> get(int64_t, Part) const {
    return broadcast(value);
  }
};

template <class T>
struct Varying {
  const T* numbers;
  template <class Part>
  HWY_INLINE Lanes<T> get(int64_t i, Part part) const {
    return load(numbers + i, part);
  }
};

template <class A, class B>
struct Times {
  A a;
  B b;
  template <class Part>
  HWY_INLINE auto get(int64_t i, Part part) const {
    return a.get(i, part) * b.get(i, part);
  }
};
template <class A, class B>
Times(A, B) -> Times<A, B>;

}  // namespace norma::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

// Loads and stores of vectors: numbers of 16 bits, parts of a vector, and the operands of a run.

// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_CORE_SIMD_MEMORY_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_CORE_SIMD_MEMORY_H
#undef NORMA_CORE_SIMD_MEMORY_H
#else
#define NORMA_CORE_SIMD_MEMORY_H
#endif

#include "base/not_copied.h"
#include "core/dtype.h"
#include "core/half.h"
#include "core/simd/lanes.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace norma::simd::HWY_NAMESPACE {

namespace detail {

/// True iff one instruction can load or store a part of a register.
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
  static_assert(sizeof(S) >= 2);
  const auto* source = reinterpret_cast<const uint8_t*>(from);
  auto* target = reinterpret_cast<uint8_t*>(to);
  const auto piece = [&]<int bytes>(std::integral_constant<int, bytes>) HWY_ATTR {
    if ((count * static_cast<int>(sizeof(S)) & bytes) != 0) {
      std::memcpy(target, source, bytes);
      source += bytes;
      target += bytes;
    }
  };
  if constexpr (sizeof(S) != 2) {  // of 16 bits there are fewer than 16 numbers
    piece(std::integral_constant<int, 32>{});
  }
  piece(std::integral_constant<int, 16>{});
  piece(std::integral_constant<int, 8>{});
  piece(std::integral_constant<int, 4>{});
  if constexpr (sizeof(S) == 2) {
    piece(std::integral_constant<int, 2>{});
  }
}

using Bits16 = hn::Rebind<uint16_t, Tag<float>>;

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

#if HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64
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

/// `to` is aligned to the vector's bytes. Half a register is stored by store(): on x86, Highway would write a whole
/// one.
template <class S, class R, int n>
HWY_INLINE void stream(S* to, const Parts<R, n>& value) {
  if constexpr (kRegisterLanes<compute_t<S>> * sizeof(S) < 16) {
    store(to, value);
  } else if constexpr (n > 1) {
    stream(to, value.low);
    stream(to + n / 2 * kRegisterLanes<compute_t<S>>, value.high);
  } else if constexpr (sizeof(S) == 2) {
    hn::Stream(narrow(value.only, S{}), Bits16{}, reinterpret_cast<uint16_t*>(to));
  } else {
    hn::Stream(value.only, Tag<S>{}, to);
  }
}

// Loads and stores of a part of a vector. Empty registers are still loaded, with an empty mask: that touches no memory.

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

/// The mask for loading and storing numbers S: it has their width in memory.
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

template <class S>
HWY_INLINE Register<compute_t<S>> load(const S* from, OneRegister) {
  return detail::load<S, 1>(from);
}
template <class S>
HWY_INLINE void store(S* to, const Register<compute_t<S>>& value, OneRegister) {
  detail::store(to, value);
}

/// Loads or stores `count` numbers and touches nothing after them. The other lanes become 0.
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

/// store() as an object, for loops that are given the way to store.
struct CachedStore {
  template <class S, class Part>
  HWY_INLINE void operator()(S* to, const Lanes<compute_t<S>>& value, Part part) const {
    store(to, value, part);
  }
};

/// Stores around the caches if `on`, for results that are larger than what the caches hold until they are read: a line
/// that is written whole need not come from memory first. Numbers that do not fill an aligned vector are stored by
/// store(). Other threads may read the results after the object is gone.
class StreamingStore : NotCopied {
 public:
  explicit StreamingStore(bool on) : on_(on) {}
  ~StreamingStore() {
    if (on_) {
      hwy::FlushStream();
    }
  }

  template <class S, class Part>
  HWY_INLINE void operator()(S* to, const Lanes<compute_t<S>>& value, Part part) const {
    if constexpr (std::is_same_v<Part, Whole>) {
      if (on_ && reinterpret_cast<uintptr_t>(to) % (kLanes<compute_t<S>> * sizeof(S)) == 0) {
        detail::stream(to, value);
        return;
      }
    }
    store(to, value, part);
  }

 private:
  bool on_;
};

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

/// As for_each_lanes(), but by registers, for loops that add up nothing across lanes and need more registers than the
/// processor has.
template <class T, class F>
HWY_INLINE void for_each_register(int64_t count, F&& f) {
  int64_t i = 0;
  for (; i + kRegisterLanes<T> <= count; i += kRegisterLanes<T>) {
    f(i, OneRegister{});
  }
  if (i < count) {
    f(i, First{static_cast<int>(count - i)});
  }
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

template <class S>
struct Varying {
  const S* numbers;
  template <class Part>
  HWY_INLINE Lanes<compute_t<S>> get(int64_t i, Part part) const {
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

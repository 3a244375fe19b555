#pragma once

#include "core/half.h"
#include "core/multiply_add.h"
#include "ops/norm/cpu/arrays.h"
#include "ops/norm/cpu/statistics.h"

#include <bit>
#include <cstdint>

#if defined(__AVX512BW__) && defined(__AVX512VL__)
#include <immintrin.h>
#endif

// Vectors of numbers as the compiler's own type, so that the loops of the norms keep them in registers on every CPU.
// Everything here is inlined: how such a vector would be handed to a function does not matter (-Wno-psabi).

namespace norma::kernels::cpu {

using FloatLanes = float __attribute__((vector_size(64)));
using DoubleLanes = double __attribute__((vector_size(64)));
using WordLanes = uint32_t __attribute__((vector_size(64)));
using HalfWordLanes = uint16_t __attribute__((vector_size(32)));
// The same anywhere in memory.
using FloatsInMemory = float __attribute__((vector_size(64), aligned(4), may_alias));
using DoublesInMemory = double __attribute__((vector_size(64), aligned(8), may_alias));
using HalfWordsInMemory = uint16_t __attribute__((vector_size(32), aligned(2), may_alias));

template <class T>
using Lanes = std::conditional_t<std::is_same_v<T, double>, DoubleLanes, FloatLanes>;
template <class T>
inline constexpr int kLanes = 64 / sizeof(T);

// --- 16 bits ----------------------------------------------------------------------------------------------------

// GCC 12 makes four instructions of a conversion to twice the width where there is one for it.

[[gnu::always_inline]] inline WordLanes to_words(HalfWordLanes bits) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  return std::bit_cast<WordLanes>(_mm512_cvtepu16_epi32(std::bit_cast<__m256i>(bits)));
#else
  return __builtin_convertvector(bits, WordLanes);
#endif
}
[[gnu::always_inline]] inline HalfWordLanes to_half_words(WordLanes words) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  return std::bit_cast<HalfWordLanes>(_mm512_cvtepi32_epi16(std::bit_cast<__m512i>(words)));
#else
  return __builtin_convertvector(words, HalfWordLanes);
#endif
}

[[gnu::always_inline]] inline FloatLanes widen(HalfWordLanes bits, bfloat16) {
  return std::bit_cast<FloatLanes>(to_words(bits) << 16);
}
[[gnu::always_inline]] inline HalfWordLanes narrow(FloatLanes value, bfloat16) {
  const auto word = std::bit_cast<WordLanes>(value);
  const WordLanes rounded = (word + 0x7FFFU + ((word >> 16) & 1U)) >> 16;
  const WordLanes quiet = (word >> 16) | 0x0040U;  // a NaN must stay one
  return to_half_words(value != value ? quiet : rounded);
}

[[gnu::always_inline]] inline FloatLanes widen(HalfWordLanes bits, float16) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  return std::bit_cast<FloatLanes>(_mm512_cvtph_ps(std::bit_cast<__m256i>(bits)));
#else
  const WordLanes word = to_words(bits);
  // The exponent is off by 112, which the multiplication mends for subnormal numbers too.
  const FloatLanes scaled = std::bit_cast<FloatLanes>((word & 0x7FFFU) << 13) * 0x1p112F;
  const WordLanes finite = std::bit_cast<WordLanes>(scaled);
  const WordLanes magnitude = (word & 0x7C00U) == 0x7C00U ? finite | 0x7F800000U : finite;
  return std::bit_cast<FloatLanes>(magnitude | ((word & 0x8000U) << 16));
#endif
}
[[gnu::always_inline]] inline HalfWordLanes narrow(FloatLanes value, float16) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  return std::bit_cast<HalfWordLanes>(
      _mm512_cvtps_ph(std::bit_cast<__m512>(value), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#else
  HalfWordLanes bits;
  for (int lane = 0; lane < kLanes<float>; ++lane) {
    bits[lane] = float16(value[lane]).bits;
  }
  return bits;
#endif
}

// --- between memory and registers -------------------------------------------------------------------------------

/// How much of a vector is meant: all lanes, or the first few.
struct Whole {};
struct First {
  int count;
};

template <class S>
[[gnu::always_inline]] inline Lanes<compute_t<S>> load(const S* from, Whole) {
  if constexpr (sizeof(S) == 2) {
    return widen(*reinterpret_cast<const HalfWordsInMemory*>(from), S{});
  } else if constexpr (sizeof(S) == 4) {
    return *reinterpret_cast<const FloatsInMemory*>(from);
  } else {
    return *reinterpret_cast<const DoublesInMemory*>(from);
  }
}

template <class S>
[[gnu::always_inline]] inline void store(S* to, Lanes<compute_t<S>> value, Whole) {
  if constexpr (sizeof(S) == 2) {
    *reinterpret_cast<HalfWordsInMemory*>(to) = narrow(value, S{});
  } else if constexpr (sizeof(S) == 4) {
    *reinterpret_cast<FloatsInMemory*>(to) = value;
  } else {
    *reinterpret_cast<DoublesInMemory*>(to) = value;
  }
}

/// The other lanes become 0.
template <class S>
[[gnu::always_inline]] inline Lanes<compute_t<S>> load(const S* from, First first) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  const uint32_t mask = (1U << first.count) - 1U;
  if constexpr (sizeof(S) == 2) {
    const __m256i bits = _mm256_maskz_loadu_epi16(static_cast<__mmask16>(mask), from);
    return widen(std::bit_cast<HalfWordLanes>(bits), S{});
  } else if constexpr (sizeof(S) == 4) {
    return std::bit_cast<FloatLanes>(_mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from));
  } else {
    return std::bit_cast<DoubleLanes>(_mm512_maskz_loadu_pd(static_cast<__mmask8>(mask), from));
  }
#else
  Lanes<compute_t<S>> value = {};
  for (int lane = 0; lane < first.count; ++lane) {
    value[lane] = static_cast<compute_t<S>>(from[lane]);
  }
  return value;
#endif
}

template <class S>
[[gnu::always_inline]] inline void store(S* to, Lanes<compute_t<S>> value, First first) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  const uint32_t mask = (1U << first.count) - 1U;
  if constexpr (sizeof(S) == 2) {
    _mm256_mask_storeu_epi16(to, static_cast<__mmask16>(mask), std::bit_cast<__m256i>(narrow(value, S{})));
  } else if constexpr (sizeof(S) == 4) {
    _mm512_mask_storeu_ps(to, static_cast<__mmask16>(mask), std::bit_cast<__m512>(value));
  } else {
    _mm512_mask_storeu_pd(to, static_cast<__mmask8>(mask), std::bit_cast<__m512d>(value));
  }
#else
  for (int lane = 0; lane < first.count; ++lane) {
    to[lane] = static_cast<S>(value[lane]);
  }
#endif
}

/// Calls f(i, how much) for the vectors of a run of `count` numbers of the compute type T.
template <class T, class F>
[[gnu::always_inline]] inline void for_each_lanes(int64_t count, F&& f) {
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    f(i, Whole{});
  }
  if (i < count) {
    f(i, First{static_cast<int>(count - i)});
  }
}

/// Lanes from `count` on become 0.
template <class T>
[[gnu::always_inline]] inline Lanes<T> keep(Lanes<T> value, Whole) {
  return value;
}
template <class T>
[[gnu::always_inline]] inline Lanes<T> keep(Lanes<T> value, First first) {
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  const uint32_t mask = (1U << first.count) - 1U;
  if constexpr (sizeof(T) == 4) {
    return std::bit_cast<FloatLanes>(_mm512_maskz_mov_ps(static_cast<__mmask16>(mask), std::bit_cast<__m512>(value)));
  } else {
    return std::bit_cast<DoubleLanes>(_mm512_maskz_mov_pd(static_cast<__mmask8>(mask), std::bit_cast<__m512d>(value)));
  }
#else
  for (int lane = first.count; lane < kLanes<T>; ++lane) {
    value[lane] = 0;
  }
  return value;
#endif
}

template <class T>
[[gnu::always_inline]] inline Lanes<T> broadcast(T value) {
  return value - Lanes<T>{};
}

/// Lanes i and i + 8 of floats are added up as they are, the rest in double, by halves.
[[gnu::always_inline]] inline DoubleLanes half_sums(DoubleLanes v) {
  return v;
}
[[gnu::always_inline]] inline DoubleLanes half_sums(FloatLanes v) {
  const auto sums = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                    __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
#if defined(__AVX512BW__) && defined(__AVX512VL__)
  return std::bit_cast<DoubleLanes>(_mm512_cvtps_pd(std::bit_cast<__m256>(sums)));
#else
  return __builtin_convertvector(sums, DoubleLanes);
#endif
}

template <class L>
[[gnu::always_inline]] inline Pair<double> add_lanes(L a, L b) {
  const DoubleLanes first = half_sums(a);
  const DoubleLanes second = half_sums(b);
  const DoubleLanes eight = __builtin_shufflevector(first, second, 0, 8, 2, 10, 4, 12, 6, 14) +
                            __builtin_shufflevector(first, second, 1, 9, 3, 11, 5, 13, 7, 15);
  const auto four =
      __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  const auto two = __builtin_shufflevector(four, four, 0, 1) + __builtin_shufflevector(four, four, 2, 3);
  return {two[0], two[1]};
}
template <class L>
[[gnu::always_inline]] inline double add_lanes(L v) {
  const DoubleLanes eight = half_sums(v);
  const auto four =
      __builtin_shufflevector(eight, eight, 0, 1, 2, 3) + __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  const auto two = __builtin_shufflevector(four, four, 0, 1) + __builtin_shufflevector(four, four, 2, 3);
  return two[0] + two[1];
}

// --- operands of a run: numbers that vary along it, or one for all ----------------------------------------------

template <class T>
struct Same {
  T value;
  template <class Part>
  [[gnu::always_inline]] Lanes<T> get(int64_t, Part) const {
    return broadcast(value);
  }
};

template <class T>
struct Varying {
  const T* numbers;
  template <class Part>
  [[gnu::always_inline]] Lanes<T> get(int64_t i, Part part) const {
    return load(numbers + i, part);
  }
};

template <class A, class B>
struct Times {
  A a;
  B b;
  template <class Part>
  [[gnu::always_inline]] auto get(int64_t i, Part part) const {
    return a.get(i, part) * b.get(i, part);
  }
};
template <class A, class B>
Times(A, B) -> Times<A, B>;

}  // namespace norma::kernels::cpu

#pragma once

#include <bit>
#include <type_traits>

#ifdef __FMA__
#include <immintrin.h>
#endif

namespace norma {

// The compiler makes no fused multiply-add of its own (-ffp-contract=off in cmake/room.cmake): it would make one of
// a * b + c or not depending on what it has inlined around it, and the same formula in two places would differ in its
// last bit. Loops that gain from one say so with multiply_add().

/// a * b + c: rounded once where that is an instruction of the processor that the build is for, else twice, since
/// std::fma would be a slow call there. For float, double and the compiler's vectors of them; lanes give the bits of
/// the numbers they hold.
template <class T>
requires std::is_floating_point_v<T>
[[gnu::always_inline]] inline T multiply_add(T a, T b, T c) {
#ifdef __FMA__
  if constexpr (sizeof(T) == 4) {
    return __builtin_fmaf(a, b, c);
  } else {
    return __builtin_fma(a, b, c);
  }
#else
  return a * b + c;
#endif
}

template <class V>
requires(!std::is_arithmetic_v<V>) [[gnu::always_inline]] inline V multiply_add(V a, V b, V c) {
#ifdef __FMA__
  using T = std::remove_cvref_t<decltype(a[0])>;
  constexpr bool is_float = std::is_same_v<T, float>;
#ifdef __AVX512F__
  if constexpr (sizeof(V) == 64 && is_float) {
    return std::bit_cast<V>(
        _mm512_fmadd_ps(std::bit_cast<__m512>(a), std::bit_cast<__m512>(b), std::bit_cast<__m512>(c)));
  } else if constexpr (sizeof(V) == 64) {
    return std::bit_cast<V>(
        _mm512_fmadd_pd(std::bit_cast<__m512d>(a), std::bit_cast<__m512d>(b), std::bit_cast<__m512d>(c)));
  }
#endif
  // In pieces of 32 bytes. GCC 12 keeps them in registers when they are named like this, and not when they are cut out
  // with shuffles or std::bit_cast.
  using Piece [[gnu::vector_size(32), gnu::may_alias]] = T;
  V result;
  for (unsigned i = 0; i < sizeof(V) / sizeof(Piece); ++i) {
    const Piece& left = reinterpret_cast<const Piece*>(&a)[i];
    const Piece& right = reinterpret_cast<const Piece*>(&b)[i];
    const Piece& rest = reinterpret_cast<const Piece*>(&c)[i];
    Piece& piece = reinterpret_cast<Piece*>(&result)[i];
    if constexpr (is_float) {
      piece = std::bit_cast<Piece>(
          _mm256_fmadd_ps(std::bit_cast<__m256>(left), std::bit_cast<__m256>(right), std::bit_cast<__m256>(rest)));
    } else {
      piece = std::bit_cast<Piece>(
          _mm256_fmadd_pd(std::bit_cast<__m256d>(left), std::bit_cast<__m256d>(right), std::bit_cast<__m256d>(rest)));
    }
  }
  return result;
#else
  return a * b + c;
#endif
}

}  // namespace norma

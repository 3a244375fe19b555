#pragma once

#include "core/cuda/kernel.h"
#include "core/dtype.h"

#include <cmath>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#endif

namespace norma::kernels::NORMA_BACKEND {

// --- 16 bits, which are computed with in float32 --------------------------------------------------------------------

/// An element as the number that is computed with.
template <class S>
NORMA_DEVICE compute_t<S> to_number(S element) {
  if constexpr (std::is_same_v<S, compute_t<S>>) {
    return element;
  } else {
#ifdef __CUDACC__
    if constexpr (std::is_same_v<S, bfloat16>) {
      return __uint_as_float(static_cast<unsigned>(element.bits) << 16);
    } else {
      return __half2float(__ushort_as_half(element.bits));
    }
#else
    return static_cast<float>(element);
#endif
  }
}

/// The element next to a number, ties to even.
template <class S>
NORMA_DEVICE S to_element(compute_t<S> number) {
  if constexpr (std::is_same_v<S, compute_t<S>>) {
    return number;
  } else {
#ifdef __CUDACC__
    S element;
    if constexpr (std::is_same_v<S, bfloat16>) {
      unsigned short bits;
      asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(number));
      element.bits = bits;
    } else {
      element.bits = __half_as_ushort(__float2half_rn(number));
    }
    return element;
#else
    return S(number);
#endif
  }
}

// --- several at a time ----------------------------------------------------------------------------------------------

/// Elements in 16 bytes, the most that one instruction moves.
template <class S>
inline constexpr int kVectorOf = static_cast<int>(16 / sizeof(S));

/// True iff vectors of 16 bytes may be loaded from all of these; null counts for nothing.
template <class... Pointers>
bool are_aligned(const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) | ...) % 16) == 0;
}

/// N neighbouring elements, which one instruction loads or stores where they fill 16 bytes or less.
template <class S, int N>
struct alignas(sizeof(S) * N < 16 ? sizeof(S) * N : 16) Vector {
  S elements[N];
};

/// Ends the program where a vector does not begin at a multiple of its size, as a GPU does.
template <class Vector>
NORMA_DEVICE void expect_aligned([[maybe_unused]] const void* address) {
#ifndef __CUDACC__
  if (reinterpret_cast<uintptr_t>(address) % alignof(Vector) != 0) {
    __builtin_trap();
  }
#endif
}

template <class S, int N>
NORMA_DEVICE void load(const S* from, compute_t<S> (&to)[N]) {
  expect_aligned<Vector<S, N>>(from);
  const auto vector = *reinterpret_cast<const Vector<S, N>*>(from);
  NORMA_UNROLL
  for (int i = 0; i < N; ++i) {
    to[i] = to_number(vector.elements[i]);
  }
}
#ifdef __CUDACC__
/// What one instruction stores.
template <size_t bytes>
using StoredWord =
    std::conditional_t<bytes == 16, uint4,
                       std::conditional_t<bytes == 8, uint2, std::conditional_t<bytes == 4, unsigned, unsigned short>>>;

/// A vector in global memory, by whole words: the compiler may split an assignment into its elements.
template <class Vector>
NORMA_DEVICE void store_words(void* to, const Vector& vector) {
  using Word = StoredWord<alignof(Vector)>;
  Word words[sizeof(Vector) / sizeof(Word)];
  memcpy(words, &vector, sizeof(Vector));
  NORMA_UNROLL
  for (size_t i = 0; i < sizeof(Vector) / sizeof(Word); ++i) {
    __stwb(static_cast<Word*>(to) + i, words[i]);
  }
}
#endif

/// `to` is in global memory.
template <class S, int N>
NORMA_DEVICE void store(S* to, const compute_t<S> (&from)[N]) {
  expect_aligned<Vector<S, N>>(to);
  Vector<S, N> vector;
  NORMA_UNROLL
  for (int i = 0; i < N; ++i) {
    vector.elements[i] = to_element<S>(from[i]);
  }
#ifdef __CUDACC__
  if constexpr (N > 1) {
    store_words(to, vector);
    return;
  }
#endif
  *reinterpret_cast<Vector<S, N>*>(to) = vector;
}

}  // namespace norma::kernels::NORMA_BACKEND

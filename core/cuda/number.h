#pragma once

#include "core/cuda/kernel.h"
#include "core/dtype.h"

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace norma::kernels::NORMA_BACKEND {

// --- 16 bits, which are computed with in float32 --------------------------------------------------------------------

/// An element as the number that is computed with.
template <class S>
NORMA_DEVICE compute_t<S> to_number(S element) {
  if constexpr (std::is_same_v<S, compute_t<S>>) {
    return element;
  } else {
    return widened(element);
  }
}

/// The element next to a number, ties to even.
template <class S>
NORMA_DEVICE S to_element(compute_t<S> number) {
  if constexpr (std::is_same_v<S, compute_t<S>>) {
    return number;
  } else {
    return narrowed<S>(number);
  }
}

// --- several at a time ----------------------------------------------------------------------------------------------

/// Elements in 16 bytes, the most that one instruction moves.
template <class S>
inline constexpr int kVectorOf = static_cast<int>(16 / sizeof(S));

/// True iff vectors of 16 bytes may be loaded from all of these pointers; null ones are ignored.
template <class... Pointers>
bool are_aligned(const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) | ...) % 16) == 0;
}

/// True iff elements are converted in pairs.
template <class S, int N>
inline constexpr bool kInPairs = (std::is_same_v<S, bfloat16> || std::is_same_v<S, float16>)&&N % 2 == 0;

/// N neighbouring elements, which one instruction loads or stores where they fill 16 bytes or less.
template <class S, int N>
struct alignas(sizeof(S) * N < 16 ? sizeof(S) * N : 16) Vector {
  S elements[N];
};

template <class S, int N>
NORMA_DEVICE void load(const S* from, compute_t<S> (&to)[N]) {
  expect_aligned<Vector<S, N>>(from);
  const auto vector = *reinterpret_cast<const Vector<S, N>*>(from);
  if constexpr (kInPairs<S, N>) {
    NORMA_UNROLL
    for (int i = 0; i < N; i += 2) {
      const S pair[2] = {vector.elements[i], vector.elements[i + 1]};
      compute_t<S> numbers[2];
      widened(pair, numbers);
      to[i] = numbers[0];
      to[i + 1] = numbers[1];
    }
  } else {
    NORMA_UNROLL
    for (int i = 0; i < N; ++i) {
      to[i] = to_number(vector.elements[i]);
    }
  }
}

/// `to` is in global memory.
template <class S, int N>
NORMA_DEVICE void store(S* to, const compute_t<S> (&from)[N]) {
  expect_aligned<Vector<S, N>>(to);
  Vector<S, N> vector;
  if constexpr (kInPairs<S, N>) {
    NORMA_UNROLL
    for (int i = 0; i < N; i += 2) {
      S pair[2];
      narrowed(from[i], from[i + 1], pair);
      vector.elements[i] = pair[0];
      vector.elements[i + 1] = pair[1];
    }
  } else {
    NORMA_UNROLL
    for (int i = 0; i < N; ++i) {
      vector.elements[i] = to_element<S>(from[i]);
    }
  }
  if constexpr (N > 1) {
    store_vector(to, vector);
  } else {
    *to = vector.elements[0];
  }
}

}  // namespace norma::kernels::NORMA_BACKEND

#pragma once

#include "core/cuda/flat_loop.h"
#include "core/strided_loop.h"
#include "ops/pointwise/kernels.h"

#include <algorithm>
#include <utility>

// One loop for all functions of this family: y = f(x, …) over operands of any strides. It takes several neighbours at a
// time if all operands lie side by side.

namespace norma::kernels::NORMA_BACKEND {

/// Neighbouring elements as numbers.
template <class S, int kWidth>
struct Numbers {
  compute_t<S> of[kWidth];
};

/// The numbers from `from` on; the same number kWidth times if the stride is 0.
template <int kWidth, class S>
NORMA_DEVICE Numbers<S, kWidth> numbers_at(const S* from, int64_t stride) {
  Numbers<S, kWidth> numbers;
  if (kWidth == 1 || stride == 0) {
    const compute_t<S> number = to_number(*from);
    NORMA_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      numbers.of[i] = number;
    }
  } else {
    load<S, kWidth>(from, numbers.of);
  }
  return numbers;
}

template <int kWidth, class F, class Y, class... Xs>
NORMA_DEVICE void store_results(F f, Y* y, const Numbers<Xs, kWidth>&... x) {
  compute_t<Y> results[kWidth];
  NORMA_UNROLL
  for (int i = 0; i < kWidth; ++i) {
    results[i] = f(x.of[i]...);
  }
  store<Y, kWidth>(y, results);
}

/// Steps of kWidth elements. `loop` counts vectors; its strides count elements. `rest` is the number of elements after
/// the last vector, if there is one axis.
template <int kWidth, size_t N>
struct MapLoop {
  FlatLoop<static_cast<int>(N)> loop;
  int rest;

  NORMA_DEVICE int64_t innermost_stride(size_t operand) const { return loop.strides[operand][loop.axes - 1] / kWidth; }
};

template <int kWidth, class F, class Y, class... Xs, size_t... n>
NORMA_DEVICE void map_vectors(const MapLoop<kWidth, 1 + sizeof...(Xs)>& vectors, F f, std::index_sequence<n...>, Y* y,
                              const Xs*... x) {
  const auto& loop = vectors.loop;
  for (int64_t i = global_thread(); i < loop.count; i += global_threads()) {
    int64_t at[1 + sizeof...(Xs)];
    loop.offsets(i, at);
    store_results<kWidth, F, Y, Xs...>(f, y + at[0],
                                       numbers_at<kWidth>(x + at[1 + n], vectors.innermost_stride(1 + n))...);
  }
  if (kWidth > 1 && global_thread() < vectors.rest) {
    const int64_t i = loop.count * kWidth + global_thread();
    y[i] = to_element<Y>(f(to_number(x[i * vectors.innermost_stride(1 + n)])...));
  }
}

template <int kWidth, class F, class Y, class... Xs>
NORMA_KERNEL void map_elements(MapLoop<kWidth, 1 + sizeof...(Xs)> vectors, F f, Y* y, const Xs*... x) {
  map_vectors<kWidth, F, Y, Xs...>(vectors, f, std::index_sequence_for<Xs...>{}, y, x...);
}

/// True iff every operand can be read and written by vectors of kWidth elements: along the innermost axis the output is
/// one run of memory, inputs are too or stay the same, and vectors begin where they are aligned.
template <int kWidth, size_t N>
bool takes_vectors(const StridedLoop<N>& loop, const std::array<uintptr_t, N>& addresses,
                   const std::array<size_t, N>& element_sizes) {
  const int64_t innermost = loop.sizes.size() - 1;
  if (innermost > 0 && loop.sizes[innermost] % kWidth != 0) {
    return false;
  }
  for (size_t n = 0; n < N; ++n) {
    const Strides& strides = loop.strides[n];
    if (n > 0 && strides[innermost] == 0) {
      continue;
    }
    if (strides[innermost] != 1 || addresses[n] % (element_sizes[n] * kWidth) != 0) {
      return false;
    }
    for (int64_t axis = 0; axis < innermost; ++axis) {
      if (strides[axis] % kWidth != 0) {
        return false;
      }
    }
  }
  return true;
}

inline constexpr int kMapThreads = 256;

template <int kWidth, class F, class Y, class... Xs>
void launch_map(StridedLoop<1 + sizeof...(Xs)> loop, F f, Y* y, const Xs*... x) {
  const int64_t innermost = loop.sizes.size() - 1;
  const auto rest = static_cast<int>(loop.sizes[innermost] % kWidth);
  loop.sizes[innermost] /= kWidth;
  for (Strides& strides : loop.strides) {
    strides[innermost] *= kWidth;
  }
  const int64_t steps = std::max<int64_t>(loop.numel(), rest);
  launch_over(steps, kMapThreads, map_elements<kWidth, F, Y, Xs...>,
              MapLoop<kWidth, 1 + sizeof...(Xs)>{FlatLoop<1 + static_cast<int>(sizeof...(Xs))>(loop), rest}, f, y,
              x...);
}

/// y = f(x…) for elements Y and X…; f takes and returns numbers compute_t. y may be the same memory as an x with the
/// same strides.
template <class Y, class... Xs, class F, class... Operands>
void map(const Sizes& sizes, F f, const Operand& y, const Operands&... x) {
  constexpr size_t kOperands = 1 + sizeof...(Xs);
  // As many neighbours as 16 bytes hold of the widest element, and no more than of the 16-bit dtypes.
  constexpr int kWidth = std::min(8, 16 / static_cast<int>(std::max({sizeof(Y), sizeof(Xs)...})));
  const auto loop = make_strided_loop<kOperands>(sizes, {y.strides, x.strides...});
  if (loop.numel() == 0) {
    return;
  }
  const bool by_vectors = takes_vectors<kWidth, kOperands>(
      loop, {reinterpret_cast<uintptr_t>(y.data), reinterpret_cast<uintptr_t>(x.data)...}, {sizeof(Y), sizeof(Xs)...});
  if (by_vectors) {
    launch_map<kWidth>(loop, f, static_cast<Y*>(y.data), static_cast<const Xs*>(x.data)...);
  } else {
    launch_map<1>(loop, f, static_cast<Y*>(y.data), static_cast<const Xs*>(x.data)...);
  }
}

}  // namespace norma::kernels::NORMA_BACKEND

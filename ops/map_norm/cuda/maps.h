#pragma once

#include "core/cuda/math.h"
#include "ops/map_norm/functions.h"

// y and dx of a MapFunction. A thread has some neighbouring elements: of one map, or in channels_last of as many maps.

namespace norma::kernels::NORMA_BACKEND {

/// The number of neighbouring elements of one thread, if the tensor consists of so many.
template <class S>
inline constexpr int kMapVector = sizeof(S) == 8 ? 2 : 4;

/// The first `count` rows of an array of (rows, maps), for `width` neighbouring elements.
template <class T, int count, int width>
class ElementNumbers {
 public:
  /// Loads them from the first element's map on. `neighbours`: the elements belong to neighbouring maps, else to one.
  NORMA_DEVICE ElementNumbers(const T* all, int64_t maps, int64_t map, bool neighbours) {
    NORMA_UNROLL
    for (int k = 0; k < count; ++k) {
      const T* row = all + k * maps + map;
      if (neighbours) {
        load<T, width>(row, numbers_[k]);
      } else {
        NORMA_UNROLL
        for (int j = 0; j < width; ++j) {
          numbers_[k][j] = *row;
        }
      }
    }
  }
  /// The numbers of element `j`, in the form that the formulas take.
  NORMA_DEVICE auto of(int j) const {
    return [this, j](int k) { return numbers_[k][j]; };
  }

 private:
  T numbers_[count][width];
};

/// The map of element i.
NORMA_DEVICE int64_t map_of(const MapShape& shape, int64_t i) {
  if (!shape.channels_last) {
    return quotient(i, shape.inner);
  }
  const int64_t row = quotient(i, shape.channels);
  return quotient(row, shape.inner) * shape.channels + (i - row * shape.channels);
}

template <class F, class T, class N>
NORMA_DEVICE T map_value(bool relu, const T& x, const N& n) {
  return relu ? WithRelu<F>::value(x, n) : F::value(x, n);
}
template <class F, class T, class N>
NORMA_DEVICE Derivatives<T> map_derivatives(bool relu, const T& dy, const T& x, const N& n) {
  return relu ? WithRelu<F>::derivatives(dy, x, n) : F::derivatives(dy, x, n);
}

template <class F, class S, int width, class T = compute_t<S>>
NORMA_KERNEL void map_values(MapShape shape, bool relu, const S* x, const T* numbers, S* y) {
  const int64_t vectors = shape.maps() * shape.inner / width;
  for (int64_t v = global_thread(); v < vectors; v += global_threads()) {
    const int64_t i = v * width;
    const ElementNumbers<T, map_counts(F::kFunction).numbers, width> of(numbers, shape.maps(), map_of(shape, i),
                                                                        shape.channels_last);
    T values[width];
    load<S, width>(x + i, values);
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      values[j] = map_value<F>(relu, values[j], of.of(j));
    }
    store<S, width>(y + i, values);
  }
}

/// MapGradient with types.
template <class S, class T = compute_t<S>>
struct MapGradientArrays {
  const S* dy;
  const S* x;
  const T* numbers;
  const T* through_stats;
  S* dx;
};

template <class F, class S, int width>
NORMA_KERNEL void map_gradients(MapShape shape, bool relu, MapGradientArrays<S> a) {
  using T = compute_t<S>;
  enum Row : int { kMean, kMeanLow, kRstd, kBy, kShift };
  const int64_t vectors = shape.maps() * shape.inner / width;
  for (int64_t v = global_thread(); v < vectors; v += global_threads()) {
    const int64_t i = v * width;
    const int64_t map = map_of(shape, i);
    const ElementNumbers<T, map_counts(F::kFunction).numbers, width> of(a.numbers, shape.maps(), map,
                                                                        shape.channels_last);
    const ElementNumbers<T, kThroughStatsRows, width> stats(a.through_stats, shape.maps(), map, shape.channels_last);
    T dy[width];
    T values[width];
    load<S, width>(a.dy + i, dy);
    load<S, width>(a.x + i, values);
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      const auto of_stats = stats.of(j);
      const T centred = ((values[j] - of_stats(kMean)) - of_stats(kMeanLow)) * of_stats(kRstd);
      const T through_stats = fused_multiply_add(centred, of_stats(kBy), of_stats(kShift));
      values[j] = map_derivatives<F>(relu, dy[j], values[j], of.of(j)).slope + through_stats;
    }
    store<S, width>(a.dx + i, values);
  }
}

/// True iff all of these load vectors of kMapVector<S> elements, and a vector has one map or as many as elements.
template <class S, class... Pointers>
bool has_map_vectors(const MapShape& shape, const Pointers*... pointers) {
  return are_aligned(pointers...) && (shape.channels_last ? shape.channels : shape.inner) % kMapVector<S> == 0;
}

/// Calls f(width, blocks, threads) for a launch over all elements.
template <class S, class F>
void with_map_width(const MapShape& shape, bool vectors, F&& f) {
  constexpr int kThreads = 256;
  const auto call = [&](auto width) {
    const int64_t work = shape.maps() * shape.inner / width;
    f(width, blocks_for(work, kThreads), threads_for(work, kThreads));
  };
  if (vectors) {
    call(std::integral_constant<int, kMapVector<S>>{});
  } else {
    call(std::integral_constant<int, 1>{});
  }
}

inline void map_forward(DType dtype, const MapProblem& problem, const MapForward& a) {
  dispatch_any_floating("map_norm", dtype, [&](auto zero) {
    using S = decltype(zero);
    using T = compute_t<S>;
    with_function(problem.function, [&]<class F>(F) {
      const bool vectors = has_map_vectors<S>(problem.shape, a.x, a.numbers, a.y);
      with_map_width<S>(problem.shape, vectors, [&](auto width, int64_t blocks, int threads) {
        launch(blocks, threads, 0, current_stream(), map_values<F, S, width>, problem.shape, problem.relu,
               static_cast<const S*>(a.x), static_cast<const T*>(a.numbers), static_cast<S*>(a.y));
      });
    });
  });
}

inline void map_gradient(DType dtype, const MapProblem& problem, const MapGradient& a) {
  dispatch_any_floating("map_norm", dtype, [&](auto zero) {
    using S = decltype(zero);
    using T = compute_t<S>;
    const MapGradientArrays<S> typed{.dy = static_cast<const S*>(a.dy),
                                     .x = static_cast<const S*>(a.x),
                                     .numbers = static_cast<const T*>(a.numbers),
                                     .through_stats = static_cast<const T*>(a.through_stats),
                                     .dx = static_cast<S*>(a.dx)};
    with_function(problem.function, [&]<class F>(F) {
      if constexpr (has_map_stats(F::kFunction)) {
        const bool vectors = has_map_vectors<S>(problem.shape, a.dy, a.x, a.numbers, a.through_stats, a.dx);
        with_map_width<S>(problem.shape, vectors, [&](auto width, int64_t blocks, int threads) {
          launch(blocks, threads, 0, current_stream(), map_gradients<F, S, width>, problem.shape, problem.relu, typed);
        });
      }
    });
  });
}

}  // namespace norma::kernels::NORMA_BACKEND

#pragma once

#include "core/cuda/row_teams.h"
#include "ops/map_norm/cuda/maps.h"

// The sums over maps for the gradients of their numbers, and dx where there are no stats. Two walks: in runs, a map is
// one run of memory and has a team of threads; in columns (channels_last), neighbouring lanes have neighbouring maps
// and the warps share their pixels.

namespace norma::kernels::NORMA_BACKEND {

/// The sums of one thread: in T over some elements, then in double.
template <class T, int count>
class TermSums {
 public:
  NORMA_DEVICE void add(const Terms<T>& terms) {
    const T all[5] = {terms.a, terms.b, terms.c, terms.d, terms.e};
    NORMA_UNROLL
    for (int k = 0; k < count; ++k) {
      chains_[k] += all[k];
    }
    if (++length_ == kLongest) {
      move();
    }
  }
  /// Must be called after the last add().
  NORMA_DEVICE void move() {
    NORMA_UNROLL
    for (int k = 0; k < count; ++k) {
      totals_[k] += static_cast<double>(chains_[k]);
      chains_[k] = T(0);
    }
    length_ = 0;
  }
  NORMA_DEVICE double operator[](int k) const { return totals_[k]; }

 private:
  static constexpr int kLongest = 32;

  T chains_[count] = {};
  double totals_[count] = {};
  int length_ = 0;
};

/// MapSums with types.
template <class S, class T = compute_t<S>>
struct MapSumsArrays {
  const S* dy;
  const S* x;
  const T* numbers;
  double* sums;
  S* dx;
};

/// Adds the terms of the elements from i on, and writes dx if there is one.
template <class F, int width, class S, class N, class Sums>
NORMA_DEVICE void add_terms(bool relu, const MapSumsArrays<S>& a, int64_t i, const N& numbers, Sums& sums) {
  using T = compute_t<S>;
  T dy[width];
  T x[width];
  load<S, width>(a.dy + i, dy);
  load<S, width>(a.x + i, x);
  NORMA_UNROLL
  for (int j = 0; j < width; ++j) {
    const Derivatives<T> both = map_derivatives<F>(relu, dy[j], x[j], numbers);
    sums.add(both.terms);
    dy[j] = both.slope;
  }
  if constexpr (!has_map_stats(F::kFunction)) {
    store<S, width>(a.dx + i, dy);
  }
}

template <class F, class S, int width, bool by_block>
NORMA_KERNEL void sums_of_runs(MapShape shape, bool relu, int lanes, MapSumsArrays<S> a) {
  using T = compute_t<S>;
  constexpr int kSums = map_counts(F::kFunction).sums;
  for_each_row<by_block>(shape.maps(), lanes, [&](const auto& team, int64_t map, bool there) {
    const ElementNumbers<T, map_counts(F::kFunction).numbers, 1> numbers(a.numbers, shape.maps(), map,
                                                                         /* neighbours= */ false);
    TermSums<T, kSums> sums;
    for (int64_t v = team.rank(); there && v < shape.inner / width; v += team.size()) {
      add_terms<F, width>(relu, a, map * shape.inner + v * width, numbers.of(0), sums);
    }
    sums.move();
    for (int k = 0; k < kSums; ++k) {
      const double total = team.sum(sums[k]);
      if (there && team.rank() == 0) {
        a.sums[k * shape.maps() + map] = total;
      }
    }
  });
}

/// The pixels of an image that a block takes, and the number of such chunks in an image.
struct MapChunks {
  int64_t pixels;
  int64_t count;
  int warps;  ///< of the block

  explicit MapChunks(const MapShape& shape) {
    constexpr int64_t kFewest = 128;
    constexpr int64_t kMostChunks = 128;
    const int64_t wanted = std::clamp<int64_t>(shape.inner / kFewest, 1, kMostChunks);
    pixels = ceil_div(shape.inner, wanted);
    count = ceil_div(shape.inner, pixels);
    warps = static_cast<int>(std::clamp<int64_t>(pixels / 4, 1, 8));
  }
};

/// partial: (chunks, sums, maps). A block has 32 neighbouring channels of one chunk. Its shared memory has a number for
/// each thread and sum.
template <class F, class S>
NORMA_KERNEL void sums_of_columns(MapShape shape, bool relu, MapChunks chunks, MapSumsArrays<S> a, double* partial) {
  using T = compute_t<S>;
  constexpr int kSums = map_counts(F::kFunction).sums;
  const int64_t groups = ceil_div(shape.channels, kWarp);
  const int64_t rest = quotient(block(), groups);
  const int64_t channel = (block() - rest * groups) * kWarp + lane();
  const int64_t outer = quotient(rest, chunks.count);
  const int64_t chunk = rest - outer * chunks.count;
  const bool there = channel < shape.channels;
  const int warp = thread() / kWarp;
  double* shared = shared_memory<double>();
  TermSums<T, kSums> sums;
  if (there) {
    const ElementNumbers<T, map_counts(F::kFunction).numbers, 1> numbers(
        a.numbers, shape.maps(), outer * shape.channels + channel, /* neighbours= */ false);
    const int64_t first = chunk * chunks.pixels;
    const int64_t last = first + chunks.pixels < shape.inner ? first + chunks.pixels : shape.inner;
    for (int64_t pixel = first + warp; pixel < last; pixel += threads() / kWarp) {
      add_terms<F, 1>(relu, a, (outer * shape.inner + pixel) * shape.channels + channel, numbers.of(0), sums);
    }
  }
  sums.move();
  for (int k = 0; k < kSums; ++k) {
    shared[k * threads() + thread()] = sums[k];
  }
  sync_threads();
  for (int k = warp; there && k < kSums; k += threads() / kWarp) {
    double total = 0;
    for (int i = lane(); i < threads(); i += kWarp) {
      total += shared[k * threads() + i];
    }
    partial[(chunk * kSums + k) * shape.maps() + outer * shape.channels + channel] = total;
  }
}

/// sums[i] = the sum over the chunks.
NORMA_KERNEL void add_chunks(int64_t count, int64_t chunks, const double* partial, double* sums) {
  for (int64_t i = global_thread(); i < count; i += global_threads()) {
    double total = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      total += partial[chunk * count + i];
    }
    sums[i] = total;
  }
}

template <class F, class S>
void launch_sums_of_runs(const MapProblem& problem, const MapSumsArrays<S>& a) {
  const MapShape& shape = problem.shape;
  const auto with = [&](auto width) {
    const RowTeams of_maps = teams_of_rows(shape.maps(), shape.inner / width, /* side_by_side= */ false);
    with_row_teams(of_maps, [&](auto by_block, const RowTeams& teams, size_t shared_bytes) {
      launch(teams.blocks, teams.threads, shared_bytes, current_stream(), sums_of_runs<F, S, width, by_block>, shape,
             problem.relu, teams.lanes, a);
    });
  };
  if (has_map_vectors<S>(shape, a.dy, a.x, a.dx)) {
    with(std::integral_constant<int, kMapVector<S>>{});
  } else {
    with(std::integral_constant<int, 1>{});
  }
}

template <class F, class S>
void launch_sums_of_columns(const MapProblem& problem, const MapSumsArrays<S>& a) {
  constexpr int kSums = map_counts(F::kFunction).sums;
  const MapShape& shape = problem.shape;
  const MapChunks chunks(shape);
  const int64_t count = kSums * shape.maps();
  const DeviceBuffer<double> partial(chunks.count == 1 ? 0 : chunks.count * count);
  const int threads = chunks.warps * kWarp;
  launch(shape.outer * chunks.count * ceil_div(shape.channels, kWarp), threads,
         static_cast<size_t>(kSums * threads) * sizeof(double), current_stream(), sums_of_columns<F, S>, shape,
         problem.relu, chunks, a, chunks.count == 1 ? a.sums : partial.data());
  if (chunks.count > 1) {
    constexpr int kThreads = 256;
    launch(blocks_for(count, kThreads), threads_for(count, kThreads), 0, current_stream(), add_chunks, count,
           chunks.count, partial.data(), a.sums);
  }
}

inline void map_sums(DType dtype, const MapProblem& problem, const MapSums& a) {
  dispatch_any_floating("map_norm", dtype, [&](auto zero) {
    using S = decltype(zero);
    using T = compute_t<S>;
    const MapSumsArrays<S> typed{.dy = static_cast<const S*>(a.dy),
                                 .x = static_cast<const S*>(a.x),
                                 .numbers = static_cast<const T*>(a.numbers),
                                 .sums = a.sums,
                                 .dx = static_cast<S*>(a.dx)};
    with_function(problem.function, [&]<class F>(F) {
      problem.shape.channels_last ? launch_sums_of_columns<F>(problem, typed) : launch_sums_of_runs<F>(problem, typed);
    });
  });
}

}  // namespace norma::kernels::NORMA_BACKEND

#include "core/half.h"
#include "core/parallel.h"
#include "ops/map_norm/cpu/map_kernels.h"
#include "ops/map_norm/functions.h"
#include "ops/norm/cpu/run_loops.h"
#include "ops/norm/cpu/scratch.h"
#include "ops/norm/cpu/walks.h"

#include <algorithm>
#include <array>
#include <utility>

// Two loops: runs, where a map is one run of memory and its numbers stand in registers, and rows, where the elements of
// a run belong to neighbouring maps. 16 bits are widened by tiles.

namespace norma::kernels::cpu {

namespace {

/// Elements that are widened, and narrowed, at a time.
constexpr int64_t kTile = 1024;
/// Rows whose sums stay in registers.
constexpr int kRows = 4;
/// Elements that a sum in T takes in before it is carried on in double: kChain for each lane.
constexpr int64_t kRunOfSums = kChain * kLanes<float>;

/// The arrays of a call with their types; those that it does not have are null.
template <class S, class T = compute_t<S>>
struct MapArrays {
  const S* dy = nullptr;
  const S* x;
  const T* numbers;
  const T* through_stats = nullptr;
  double* sums = nullptr;
  S* result = nullptr;  ///< y or dx
};

/// The numbers of one map.
template <class T, int count>
struct MapNumbers {
  std::array<T, static_cast<size_t>(count)> numbers;
  MapNumbers(const T* all, int64_t maps, int64_t map) {
    for (int k = 0; k < count; ++k) {
      numbers[static_cast<size_t>(k)] = all[k * maps + map];
    }
  }
  [[gnu::always_inline]] T operator()(int k, int64_t) const { return numbers[static_cast<size_t>(k)]; }
};
/// Those of neighbouring maps.
template <class T>
struct RowNumbers {
  const T* first;
  int64_t maps;
  [[gnu::always_inline]] T operator()(int k, int64_t i) const { return first[k * maps + i]; }
};

/// from as T: itself, or widened into `scratch`.
template <class S, class T>
const T* widened(int64_t count, const S* from, T* scratch) {
  if constexpr (std::is_same_v<S, T>) {
    return from;
  } else {
    for_each_lanes<T>(count, [&](int64_t i, auto part) { store(scratch + i, load(from + i, part), part); });
    return scratch;
  }
}
/// Where a result of type S is computed as T, until store_wide().
template <class S, class T>
T* wide_place(S* to, T* scratch) {
  if constexpr (std::is_same_v<S, T>) {
    return to;
  } else {
    return scratch;
  }
}
template <class S, class T>
void store_wide(int64_t count, const T* from, S* to) {
  if constexpr (!std::is_same_v<S, T>) {
    store_run(count, from, to);
  }
}

// GCC would call the functions of these loops rather than inline them.

template <class F, class T, class N>
[[gnu::flatten]] void values(int64_t count, const T* x, const N& n, T* y) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    y[i] = F::value(x[i], n, i);
  }
}

template <class F, class T, class N>
[[gnu::flatten]] void gradients(int64_t count, const T* dy, const T* x, const N& n, T* dx) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    dx[i] = F::slope(dy[i], x[i], n, i);
  }
}

/// c: mean, mean_low, rstd, by, shift
template <class F, class T, class N, class C>
[[gnu::flatten]] void gradients(int64_t count, const T* dy, const T* x, const N& n, const C& c, T* dx) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const T centred = ((x[i] - c(0, i)) - c(1, i)) * c(2, i);
    dx[i] = F::slope(dy[i], x[i], n, i) + multiply_add(centred, c(3, i), c(4, i));
  }
}

/// The terms of elements i to i + count - 1 of a run, sum by sum, as rows of a vector each.
template <class F, class T, class N>
[[gnu::always_inline]] inline void run_terms(int64_t i, int64_t count, const T* dy, const T* x, const N& n,
                                             T (&terms)[5][kLanes<T>]) {
#pragma omp simd
  for (int64_t lane = 0; lane < count; ++lane) {
    const Terms<T> t = F::terms(dy[i + lane], x[i + lane], n, i + lane);
    terms[0][lane] = t.a;
    terms[1][lane] = t.b;
    terms[2][lane] = t.c;
    terms[3][lane] = t.d;
    terms[4][lane] = t.e;
  }
}

/// Adds the terms of a run to its sums. count: at most kRunOfSums. The lanes are ours: in a reduction their number
/// would be the compiler's choice, and with it the bits.
template <class F, class T, class N>
[[gnu::flatten]] void add_run_terms(int64_t count, const T* dy, const T* x, const N& n, double* sums) {
  Lanes<T> all[F::kSums] = {};
  const auto add = [&all](const T(&terms)[5][kLanes<T>]) {
    for (int k = 0; k < F::kSums; ++k) {
      all[k] += load(terms[k], Whole{});
    }
  };
  int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) {
    T terms[5][kLanes<T>];
    run_terms<F>(i, kLanes<T>, dy, x, n, terms);
    add(terms);
  }
  if (i < count) {
    T terms[5][kLanes<T>] = {};
    run_terms<F>(i, count - i, dy, x, n, terms);
    add(terms);
  }
  for (int k = 0; k < F::kSums; ++k) {
    sums[k] += add_lanes(all[k]);
  }
}

/// Adds the terms of a few rows to sums (F::kSums, count), column by column.
template <class F, class T, class N, int... row>
[[gnu::flatten]] void add_row_terms(int64_t count, const T* dy, const T* x, int64_t stride, const N& n, T* sums,
                                    std::integer_sequence<int, row...>) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    Terms<T> all;
    const auto add = [&all](const Terms<T>& t) {
      all.a += t.a;
      all.b += t.b;
      all.c += t.c;
      all.d += t.d;
      all.e += t.e;
    };
    (add(F::terms(dy[row * stride + i], x[row * stride + i], n, i)), ...);
    sums[i] += all.a;
    sums[count + i] += all.b;
    if constexpr (F::kSums > 2) {
      sums[2 * count + i] += all.c;
    }
    if constexpr (F::kSums > 3) {
      sums[3 * count + i] += all.d;
      sums[4 * count + i] += all.e;
    }
  }
}

/// Calls f(o, first, last) for parts of the rows of one o, on all threads.
template <class F>
void for_each_rows(const MapShape& shape, F&& f) {
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / shape.channels);
  parallel_for(0, shape.outer * shape.inner, grain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t o = begin / shape.inner;
      const int64_t last = std::min(end, (o + 1) * shape.inner);
      f(o, begin - o * shape.inner, last - o * shape.inner);
      begin = last;
    }
  });
}
/// Calls f(map) for all maps, on all threads.
template <class F>
void for_each_map(const MapShape& shape, F&& f) {
  parallel_for(0, shape.maps(), std::max<int64_t>(1, kPointwiseGrain / shape.inner), [&](int64_t begin, int64_t end) {
    for (int64_t map = begin; map < end; ++map) {
      f(map);
    }
  });
}
/// Calls f(first, count) for the tiles of a run: one, or for 16 bits as many as it takes.
template <class S, class F>
void for_each_tile(int64_t count, F&& f) {
  const int64_t tile = sizeof(S) == 2 ? kTile : count;
  for (int64_t first = 0; first < count; first += tile) {
    f(first, std::min(tile, count - first));
  }
}

template <class F, class S, class T = compute_t<S>>
void sums_of_runs(const MapShape& shape, const MapArrays<S>& a) {
  for_each_map(shape, [&](int64_t map) {
    Scratch scratch;
    T* wide_dy = scratch.take<T>(kRunOfSums);
    T* wide_x = scratch.take<T>(kRunOfSums);
    const MapNumbers<T, F::kNumbers> numbers(a.numbers, shape.maps(), map);
    std::array<double, 5> sums{};
    for (int64_t first = 0; first < shape.inner; first += kRunOfSums) {
      const int64_t count = std::min(kRunOfSums, shape.inner - first);
      const int64_t at = map * shape.inner + first;
      add_run_terms<F>(count, widened(count, a.dy + at, wide_dy), widened(count, a.x + at, wide_x), numbers,
                       sums.data());
    }
    for (int64_t k = 0; k < F::kSums; ++k) {
      a.sums[k * shape.maps() + map] = sums[static_cast<size_t>(k)];
    }
  });
}

/// The sums of rows first to last of one o, to sums (F::kSums, channels).
template <class F, class S, class T = compute_t<S>>
void sums_of_block(const MapShape& shape, const MapArrays<S>& a, int64_t o, int64_t first, int64_t last, double* sums) {
  const int64_t width = shape.channels;
  Scratch scratch;
  T* wide_dy = scratch.take<T>(kRows * width);
  T* wide_x = scratch.take<T>(kRows * width);
  T* chain = scratch.zeros<T>(F::kSums * width);
  const RowNumbers<T> numbers{.first = a.numbers + o * width, .maps = shape.maps()};
  std::fill_n(sums, F::kSums * width, 0.0);
  int64_t chained = 0;
  for (int64_t row = first; row < last;) {
    const int64_t rows = last - row >= kRows ? kRows : 1;
    const int64_t at = (o * shape.inner + row) * width;
    const T* dy = widened(rows * width, a.dy + at, wide_dy);
    const T* x = widened(rows * width, a.x + at, wide_x);
    rows == kRows ? add_row_terms<F>(width, dy, x, width, numbers, chain, std::make_integer_sequence<int, kRows>{})
                  : add_row_terms<F>(width, dy, x, width, numbers, chain, std::integer_sequence<int, 0>{});
    row += rows;
    chained += rows;
    if (chained >= kChain || row == last) {
      for (int64_t i = 0; i < F::kSums * width; ++i) {
        sums[i] += static_cast<double>(chain[i]);
        chain[i] = 0;
      }
      chained = 0;
    }
  }
}

template <class F, class S>
void sums_of_rows(const MapShape& shape, const MapArrays<S>& a) {
  // Blocks do not depend on the number of threads, and are added up in order: the bits are always the same.
  const int64_t width = shape.channels;
  const int64_t block = std::clamp<int64_t>(65536 / width, kChain, 512);
  const int64_t blocks = ceil_div(shape.inner, block);
  const int64_t per_block = F::kSums * width;
  Scratch scratch;
  double* partial = scratch.take<double>(shape.outer * blocks * per_block);
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / (block * width));
  parallel_for(0, shape.outer * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b % blocks * block;
      sums_of_block<F>(shape, a, b / blocks, first, std::min(first + block, shape.inner), partial + b * per_block);
    }
  });
  for (int64_t o = 0; o < shape.outer; ++o) {
    for (int64_t k = 0; k < F::kSums; ++k) {
      double* sums = a.sums + k * shape.maps() + o * width;
      std::fill_n(sums, width, 0.0);
      for (int64_t b = 0; b < blocks; ++b) {
        const double* of_block = partial + (o * blocks + b) * per_block + k * width;
        for (int64_t i = 0; i < width; ++i) {
          sums[i] += of_block[i];
        }
      }
    }
  }
}

template <class S>
void forward_of(const MapProblem& problem, const MapArrays<S>& a) {
  using T = compute_t<S>;
  const MapShape& shape = problem.shape;
  const auto run = [&]<class F>(F, int64_t at, int64_t all, const auto& numbers_from) {
    Scratch scratch;
    T* wide_x = scratch.take<T>(kTile);
    T* wide_y = scratch.take<T>(kTile);
    for_each_tile<S>(all, [&](int64_t first, int64_t count) {
      T* y = wide_place(a.result + at + first, wide_y);
      values<F>(count, widened(count, a.x + at + first, wide_x), numbers_from(first), y);
      store_wide(count, y, a.result + at + first);
    });
  };
  with_map_function(problem, [&]<class F>(F f) {
    if (!shape.channels_last) {
      return for_each_map(shape, [&](int64_t map) {
        const MapNumbers<T, F::kNumbers> numbers(a.numbers, shape.maps(), map);
        run(f, map * shape.inner, shape.inner, [&](int64_t) { return numbers; });
      });
    }
    for_each_rows(shape, [&](int64_t o, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        run(f, (o * shape.inner + row) * shape.channels, shape.channels, [&](int64_t first) {
          return RowNumbers<T>{.first = a.numbers + o * shape.channels + first, .maps = shape.maps()};
        });
      }
    });
  });
}

template <class S>
void sums_of(const MapProblem& problem, const MapArrays<S>& arrays) {
  with_map_function(problem, [&]<class F>(F) {
    problem.shape.channels_last ? sums_of_rows<F>(problem.shape, arrays) : sums_of_runs<F>(problem.shape, arrays);
  });
}

template <class S>
void gradient_of(const MapProblem& problem, const MapArrays<S>& a) {
  using T = compute_t<S>;
  const MapShape& shape = problem.shape;
  const auto run = [&]<class F>(F, int64_t at, int64_t all, const auto& numbers_from, const auto& through_stats_from) {
    Scratch scratch;
    T* wide_dy = scratch.take<T>(kTile);
    T* wide_x = scratch.take<T>(kTile);
    T* wide_dx = scratch.take<T>(kTile);
    for_each_tile<S>(all, [&](int64_t first, int64_t count) {
      const T* dy = widened(count, a.dy + at + first, wide_dy);
      const T* x = widened(count, a.x + at + first, wide_x);
      T* dx = wide_place(a.result + at + first, wide_dx);
      a.through_stats == nullptr ? gradients<F>(count, dy, x, numbers_from(first), dx)
                                 : gradients<F>(count, dy, x, numbers_from(first), through_stats_from(first), dx);
      store_wide(count, dx, a.result + at + first);
    });
  };
  const T* through_stats = a.through_stats == nullptr ? a.numbers : a.through_stats;  // then not read
  with_map_function(problem, [&]<class F>(F f) {
    if (!shape.channels_last) {
      return for_each_map(shape, [&](int64_t map) {
        const MapNumbers<T, F::kNumbers> numbers(a.numbers, shape.maps(), map);
        const MapNumbers<T, 5> of_map(through_stats, a.through_stats == nullptr ? 0 : shape.maps(), map);
        run(
            f, map * shape.inner, shape.inner, [&](int64_t) { return numbers; }, [&](int64_t) { return of_map; });
      });
    }
    for_each_rows(shape, [&](int64_t o, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const auto from = [&](const T* numbers) {
          return [&shape, numbers, o](int64_t first) {
            return RowNumbers<T>{.first = numbers + o * shape.channels + first, .maps = shape.maps()};
          };
        };
        run(f, (o * shape.inner + row) * shape.channels, shape.channels, from(a.numbers), from(through_stats));
      }
    });
  });
}

void map_forward(DType dtype, const MapProblem& problem, const MapForward& a) {
  dispatch_any_floating("map_norm", dtype, [&]<class S>(S) {
    using T = compute_t<S>;
    forward_of<S>(
        problem,
        {.x = static_cast<const S*>(a.x), .numbers = static_cast<const T*>(a.numbers), .result = static_cast<S*>(a.y)});
  });
}

void map_sums(DType dtype, const MapProblem& problem, const MapSums& a) {
  dispatch_any_floating("map_norm", dtype, [&]<class S>(S) {
    using T = compute_t<S>;
    sums_of<S>(problem, {.dy = static_cast<const S*>(a.dy),
                         .x = static_cast<const S*>(a.x),
                         .numbers = static_cast<const T*>(a.numbers),
                         .sums = a.sums});
  });
}

void map_gradient(DType dtype, const MapProblem& problem, const MapGradient& a) {
  dispatch_any_floating("map_norm", dtype, [&]<class S>(S) {
    using T = compute_t<S>;
    gradient_of<S>(problem, {.dy = static_cast<const S*>(a.dy),
                             .x = static_cast<const S*>(a.x),
                             .numbers = static_cast<const T*>(a.numbers),
                             .through_stats = static_cast<const T*>(a.through_stats),
                             .result = static_cast<S*>(a.dx)});
  });
}

}  // namespace

}  // namespace norma::kernels::cpu

namespace norma::kernels {

constinit const MapNormKernels map_norm_cpu{.numbers = cpu::map_numbers,
                                            .forward = cpu::map_forward,
                                            .sums = cpu::map_sums,
                                            .numbers_backward = cpu::map_numbers_backward,
                                            .gradient = cpu::map_gradient,
                                            .local_response = cpu::local_response};

}  // namespace norma::kernels

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/map_norm/cpu/map_sums.cpp"
#include "core/simd/foreach_target.h"

#include "ops/map_norm/cpu/map_kernels.h"
#include "ops/map_norm/cpu/map_loops.h"
#include "ops/map_norm/functions.h"
#include "ops/norm/cpu/scratch.h"
#include "ops/norm/cpu/walks.h"

#include <algorithm>
#include <array>
#include <utility>

// The sums over maps that the gradients of their numbers are made of.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

namespace {

/// Rows whose sums stay in registers.
constexpr int kRows = 4;
/// Elements that a sum in T takes in before it is moved to double: kChain for each lane.
constexpr int64_t kRunOfSums = kChain * kLanes<float>;

// GCC would call the functions of these loops rather than inline them: hence flatten.

/// The terms of elements i to i + count - 1 of a run, sum by sum, as rows of a vector each.
template <class F, class T, class N>
HWY_INLINE void run_terms(int64_t i, int64_t count, const T* dy, const T* x, const N& n, T (&terms)[5][kLanes<T>]) {
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
      all[k] += load(static_cast<const T*>(terms[k]), Whole{});
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

template <class F, class S, class T = compute_t<S>>
void sums_of_runs(const MapShape& shape, const MapArrays<S>& a) {
  for_each_maps(shape, [&](int64_t begin, int64_t end) {
    Scratch scratch;
    T* wide_dy = scratch.take<T>(kRunOfSums);
    T* wide_x = scratch.take<T>(kRunOfSums);
    for (int64_t map = begin; map < end; ++map) {
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
[[gnu::noinline]] void sums_of(const MapProblem& problem, const MapArrays<S>& arrays) {
  with_map_function(problem, [&]<class F>(F) {
    problem.shape.channels_last ? sums_of_rows<F>(problem.shape, arrays) : sums_of_runs<F>(problem.shape, arrays);
  });
}

}  // namespace

void map_sums(DType dtype, const MapProblem& problem, const MapSums& a) {
  dispatch_any_floating("map_norm", dtype, [&]<class S>(S) {
    using T = compute_t<S>;
    sums_of<S>(problem, {.dy = static_cast<const S*>(a.dy),
                         .x = static_cast<const S*>(a.x),
                         .numbers = static_cast<const T*>(a.numbers),
                         .sums = a.sums});
  });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

HWY_EXPORT(map_sums);
void map_sums(DType dtype, const MapProblem& problem, const MapSums& arrays) {
  NORMA_SIMD_BEST(map_sums)(dtype, problem, arrays);
}

}  // namespace norma::kernels::cpu
#endif

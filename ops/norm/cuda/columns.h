#pragma once

#include "ops/norm/cuda/rows.h"
#include "ops/norm/cuda/statistics.h"
#include "ops/norm/cuda/walks.h"

#include <algorithm>

// Columns: sets lie side by side (batch and instance norm in channels_last), or each is a few neighbouring columns
// (group norm in channels_last), and weights do not vary from row to row. Threads stand along the columns, 16 bytes
// each, and walk down the rows. Each chunk of rows has its own sums; they are added up in a fixed order by a second
// kernel.

namespace norma::kernels::NORMA_BACKEND {

inline constexpr int kColumnThreads = 256;
/// Rows that a thread adds up in T before they go on in double.
inline constexpr int64_t kRowsInT = 64;
/// Rows that pivots are taken from, spread over all.
inline constexpr int kPivotRows = 8;

/// How the rows and columns of one outer index are given to blocks.
struct ColumnPlan {
  int64_t columns = 0;        ///< elements of a row
  int lanes = 0;              ///< threads along a row; the others of a block take other rows
  int64_t tiles = 0;          ///< blocks along a row
  int64_t rows_of_chunk = 0;  ///< rows of a block
  int64_t chunks = 0;

  [[nodiscard]] int64_t blocks(const NormShape& shape) const { return shape.outer * chunks * tiles; }
};

inline ColumnPlan plan_columns(const NormShape& shape, int vector) {
  ColumnPlan plan;
  plan.columns = shape.kept * shape.reduce_inner;
  const int64_t vectors = plan.columns / vector;
  plan.lanes = 4;
  while (plan.lanes < kWarp && plan.lanes < vectors) {
    plan.lanes *= 2;
  }
  plan.tiles = ceil_div(vectors, plan.lanes);
  const int64_t rows_at_once = kColumnThreads / plan.lanes;
  plan.rows_of_chunk = kRowsInT * rows_at_once;
  // Small ones are cut finer, to keep the device busy.
  while (plan.rows_of_chunk > 4 * rows_at_once &&
         shape.outer * plan.tiles * ceil_div(shape.reduce_outer, plan.rows_of_chunk) < int64_t{4} * processors()) {
    plan.rows_of_chunk /= 2;
  }
  plan.chunks = ceil_div(shape.reduce_outer, plan.rows_of_chunk);
  return plan;
}

/// What a thread of a block works on.
template <class S>
struct ColumnPlace {
  static constexpr int kWidth = kVectorOf<S>;
  int64_t outer;
  int64_t chunk;
  int64_t column;     ///< the first of its kWidth
  bool there;         ///< its columns exist
  int64_t first_row;  ///< of the block
  int64_t last_row;   ///< behind the last one
  int row_of_thread;  ///< the thread takes this one and each rows_at_once-th behind it
  int rows_at_once;
  int64_t base;  ///< offset of column 0 of row 0

  NORMA_DEVICE ColumnPlace(const NormShape& shape, const ColumnPlan& plan, int64_t which) {
    const int64_t tile = which % plan.tiles;
    const int64_t rest = which / plan.tiles;
    chunk = rest % plan.chunks;
    outer = rest / plan.chunks;
    column = (tile * plan.lanes + thread() % plan.lanes) * kWidth;
    there = column < plan.columns;
    first_row = chunk * plan.rows_of_chunk;
    last_row = first_row + plan.rows_of_chunk;
    last_row = last_row < shape.reduce_outer ? last_row : shape.reduce_outer;
    row_of_thread = thread() / plan.lanes;
    rows_at_once = threads() / plan.lanes;
    base = outer * shape.reduce_outer * plan.columns;
  }
};

/// The set of a column.
NORMA_DEVICE int64_t set_of_column(const NormShape& shape, int64_t outer, int64_t column) {
  return outer * shape.kept + column / shape.reduce_inner;
}
/// The weight of a column.
NORMA_DEVICE int64_t weight_of_column(const NormProblem& problem, int64_t outer, int64_t column) {
  const int64_t kept = column / problem.shape.reduce_inner;
  return weight_of(problem.affine,
                   {.outer = outer, .a = 0, .kept = kept, .b = column - kept * problem.shape.reduce_inner});
}

/// Adds the sums of the threads that share columns, in the order of their rows, and lets the first of them write: in
/// sums, for each outer index and chunk a row with the one sum of each column and a row with the other.
template <int width, class T>
NORMA_DEVICE void write_column_sums(const ColumnPlan& plan, int64_t outer, int64_t chunk, int64_t column, bool there,
                                    const T (&first)[width], const T (&second)[width], double* sums) {
  T* shared = shared_memory<T>();  // for each thread its 2 · width numbers, number by number
  NORMA_UNROLL
  for (int j = 0; j < width; ++j) {
    shared[(2 * j) * threads() + thread()] = first[j];
    shared[(2 * j + 1) * threads() + thread()] = second[j];
  }
  sync_threads();
  // Thread t adds up number t / lanes of the columns of lane t % lanes, and so on.
  const int rows_at_once = threads() / plan.lanes;
  const int lane_of_row = thread() % plan.lanes;
  for (int number = thread() / plan.lanes; number < 2 * width; number += rows_at_once) {
    double sum = 0;
    for (int row = 0; row < rows_at_once; ++row) {
      sum += static_cast<double>(shared[number * threads() + row * plan.lanes + lane_of_row]);
    }
    if (there) {
      sums[((outer * plan.chunks + chunk) * 2 + number % 2) * plan.columns + column + number / 2] = sum;
    }
  }
  sync_threads();
}

/// Bytes of shared memory that write_column_sums() takes.
template <class S>
constexpr size_t column_sum_bytes() {
  return 2 * kVectorOf<S> * kColumnThreads * sizeof(compute_t<S>);
}

/// pivots: one per outer index and column. 0 for raw sums.
template <class S, class T = compute_t<S>>
NORMA_KERNEL void find_column_pivots(NormProblem problem, const S* x, T* pivots) {
  const NormShape& shape = problem.shape;
  const int64_t columns = shape.kept * shape.reduce_inner;
  for (int64_t i = global_thread(); i < shape.outer * columns; i += global_threads()) {
    const int64_t outer = i / columns;
    const S* column = x + outer * shape.reduce_outer * columns + (i - outer * columns);
    const T first = to_number(column[0]);
    T sum = 0;
    const int rows = static_cast<int>(shape.reduce_outer < kPivotRows ? shape.reduce_outer : kPivotRows);
    for (int row = 1; row < rows; ++row) {
      sum += to_number(column[shape.reduce_outer * row / rows * columns]) - first;
    }
    pivots[i] = problem.raw_sums() ? T(0) : first + sum / static_cast<T>(rows);
  }
}

/// The sums of d and d² with d = x - pivot over the rows of each chunk.
template <class S, class T = compute_t<S>>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kColumnThreads)
    add_columns(NormProblem problem, ColumnPlan plan, const S* x, const T* pivots, double* sums) {
  constexpr int kWidth = kVectorOf<S>;
  const ColumnPlace<S> place(problem.shape, plan, block());
  T first[kWidth] = {};
  T second[kWidth] = {};
  if (place.there) {
    T pivot[kWidth];
    load<T, kWidth>(pivots + place.outer * plan.columns + place.column, pivot);
    for (int64_t row = place.first_row + place.row_of_thread; row < place.last_row; row += place.rows_at_once) {
      T numbers[kWidth];
      load<S, kWidth>(x + place.base + row * plan.columns + place.column, numbers);
      NORMA_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        const T d = numbers[j] - pivot[j];
        first[j] += d;
        second[j] = fused_multiply_add(d, d, second[j]);
      }
    }
  }
  write_column_sums(plan, place.outer, place.chunk, place.column, place.there, first, second, sums);
}

/// The stats of each set from the sums of its columns' chunks, by a warp.
template <class S, class T = compute_t<S>>
NORMA_KERNEL void finish_column_statistics(NormProblem problem, ColumnPlan plan, ForwardArrays<S> arrays,
                                           const T* pivots, const double* sums) {
  const NormShape& shape = problem.shape;
  const LaneTeam team;
  const auto count = static_cast<double>(shape.set_size());
  const bool raw = problem.raw_sums();
  const int64_t warps = global_threads() / kWarp;
  for (int64_t set = global_thread() / kWarp; set < shape.sets(); set += warps) {
    const int64_t outer = set / shape.kept;
    const int64_t first_column = (set - outer * shape.kept) * shape.reduce_inner;
    /// Calls f(elements, pivot, sum, squares) for each column and chunk of this lane.
    const auto for_each_part = [&](auto f) {
      for (int64_t i = lane(); i < shape.reduce_inner * plan.chunks; i += kWarp) {
        const int64_t chunk = i / shape.reduce_inner;
        const int64_t column = first_column + (i - chunk * shape.reduce_inner);
        const int64_t begin = chunk * plan.rows_of_chunk;
        const int64_t end = begin + plan.rows_of_chunk;
        const double* of_chunk = sums + (outer * plan.chunks + chunk) * 2 * plan.columns;
        f(static_cast<double>((end < shape.reduce_outer ? end : shape.reduce_outer) - begin),
          static_cast<double>(pivots[outer * plan.columns + column]), of_chunk[column],
          of_chunk[plan.columns + column]);
      }
    };
    double total = 0;
    double squares = 0;
    for_each_part([&](double elements, double pivot, double sum, double of_squares) {
      total += fused_multiply_add(elements, pivot, sum);
      squares += of_squares;
    });
    team.sum(total, squares);
    Moments moments{0, total, squares};
    if (!raw) {
      const double mean = total / count;
      double m2 = 0;
      double from_pivots = 0;
      for_each_part([&](double elements, double pivot, double sum, double of_squares) {
        const double d = pivot - mean;
        m2 += of_squares + 2 * sum * d + elements * d * d;
        from_pivots += elements * d * d;
      });
      team.sum(m2, from_pivots);
      moments = {mean, 0, m2 < 0 ? 0 : m2};
      if (from_pivots > 4 * m2) {  // pivots were far off: once more about the mean
        moments = moments_about(problem, arrays.x, set, static_cast<T>(mean), team);
      }
    }
    auto of_set = statistics_of<T>(problem, moments);
    if (of_set.lost) {
      of_set = scaled_statistics(problem, arrays.x, set, team, of_set);
    }
    if (lane() == 0) {
      store_set(problem, arrays, set, of_set);
    }
  }
}

/// y of the rows of each chunk.
template <class S>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kColumnThreads)
    normalise_columns(NormProblem problem, ColumnPlan plan, ForwardArrays<S> arrays) {
  using T = compute_t<S>;
  constexpr int kWidth = kVectorOf<S>;
  const ColumnPlace<S> place(problem.shape, plan, block());
  Normaliser<T> normalisers[kWidth] = {};
  for (int j = 0; j < kWidth && place.there; ++j) {
    normalisers[j] =
        normaliser(arrays, arrays.weight, arrays.bias, set_of_column(problem.shape, place.outer, place.column + j),
                   problem.affine.present ? weight_of_column(problem, place.outer, place.column + j) : int64_t{0});
  }
  // All lanes of a warp take the same number of rounds, for the shuffles of the bits.
  for (int64_t first = place.first_row; first < place.last_row; first += place.rows_at_once) {
    const int64_t row = first + place.row_of_thread;
    const int64_t at = place.base + row * plan.columns + place.column;
    const bool writes = place.there && row < place.last_row;
    unsigned positive = 0;
    if (writes) {
      T z[kWidth];
      load<S, kWidth>(arrays.x + at, z);
      T residual[kWidth] = {};
      if (arrays.residual != nullptr) {
        load<S, kWidth>(arrays.residual + at, residual);
      }
      NORMA_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        z[j] = normalisers[j](z[j]) + residual[j];
        positive |= (z[j] <= T(0) ? 0U : 1U) << j;
        z[j] = activated(arrays.activation, z[j]);
      }
      store<S, kWidth>(arrays.y + at, z);
    }
    if (arrays.bits != nullptr) {
      if constexpr (kWidth == 4) {  // two lanes have a byte
        positive |= shuffle_xor(positive, 1) << 4;
      }
      if (writes && at % 8 == 0) {
        arrays.bits[at / 8] = static_cast<uint8_t>(positive);
      }
    }
  }
}

/// True iff these kernels have the case: whole vectors along the columns, and weights that do not vary along the rows.
template <class S>
bool are_columns(const NormProblem& problem) {
  /// Longer runs of one set are taken by other kernels.
  constexpr int64_t kLongestRun = 128;
  const int64_t columns = problem.shape.kept * problem.shape.reduce_inner;
  return problem.walk != Walk::rows && problem.shape.reduce_inner <= kLongestRun && columns % kVectorOf<S> == 0 &&
         problem.affine.reduce_outer == 1;
}

}  // namespace norma::kernels::NORMA_BACKEND

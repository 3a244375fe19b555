#pragma once

#include "ops/norm/cuda/loops.h"

#include <algorithm>

// How the threads of columns.cu share rows and columns, and how they add up.

namespace norma::kernels::NORMA_BACKEND {

inline constexpr int kColumnThreads = 256;
/// The number of rows that a thread adds up in T before it goes on in double.
inline constexpr int64_t kRowsInT = 64;

/// The plan by which blocks share the rows and columns of one outer index.
struct ColumnPlan {
  int64_t columns = 0;        ///< elements of a row
  int lanes = 0;              ///< threads along a row; the others of a block take other rows
  int64_t tiles = 0;          ///< blocks along a row
  int64_t rows_of_chunk = 0;  ///< rows of a block
  int64_t chunks = 0;

  [[nodiscard]] int64_t blocks(const NormShape& shape) const { return shape.outer * chunks * tiles; }
};

/// The plan for a device that runs `resident` blocks at the same time: all blocks do.
///
/// In backward each block adds up the sums of all chunks of its columns: chunks · columns of a tile pairs of them. The
/// chunks are about resident / tiles, so narrow tiles keep that small. A line of the cache is the narrowest that reads
/// memory well; half of one is better where few columns leave many chunks.
///
/// A chunk of eight steps of its block or more is an odd number of them. With chunks that begin at multiples of a large
/// power of two, as most layers of ResNet-50 had them where three blocks run on a processor, its step took 46 ms on an
/// H200, and 21 with layer2d: all blocks load from the same few channels of the memory at a time.
inline ColumnPlan plan_columns(const NormShape& shape, int vector, int64_t resident) {
  constexpr int64_t kLeastRows = 4;  // of a thread, where there are so many
  constexpr int64_t kFewVectors = 32;
  ColumnPlan plan;
  plan.columns = shape.kept * shape.reduce_inner;
  const int64_t vectors = ceil_div(plan.columns, vector);
  plan.lanes = vectors < kFewVectors ? 4 : 8;
  plan.tiles = ceil_div(vectors, plan.lanes);
  const int64_t rows_at_once = kColumnThreads / plan.lanes;
  const int64_t most = ceil_div(shape.reduce_outer, kLeastRows * rows_at_once);
  const int64_t chunks = std::clamp<int64_t>(resident / (shape.outer * plan.tiles), 1, most);
  const int64_t steps = ceil_div(ceil_div(shape.reduce_outer, chunks), rows_at_once);
  // One more of a few steps would leave many processors idle, and so few rows lie in the cache.
  constexpr int64_t kFewSteps = 8;
  plan.rows_of_chunk = (steps < kFewSteps ? steps : steps | 1) * rows_at_once;
  plan.chunks = ceil_div(shape.reduce_outer, plan.rows_of_chunk);
  return plan;
}

/// The place of a thread of a block.
template <class S>
struct ColumnPlace {
  static constexpr int kWidth = kVectorOf<S>;
  int64_t outer;
  int64_t chunk;
  int lane_of_row;
  int64_t column;     ///< the first of its kWidth
  bool there;         ///< its columns exist
  int64_t first_row;  ///< of the block
  int64_t last_row;   ///< behind the last one
  int row_of_thread;  ///< the thread takes this row and each rows_at_once-th behind it
  int rows_at_once;
  int64_t base;  ///< offset of column 0 of row 0

  NORMA_DEVICE ColumnPlace(const NormShape& shape, const ColumnPlan& plan, int64_t which) {
    const int64_t tile = which % plan.tiles;
    const int64_t rest = which / plan.tiles;
    chunk = rest % plan.chunks;
    outer = rest / plan.chunks;
    lane_of_row = thread() % plan.lanes;
    column = (tile * plan.lanes + lane_of_row) * kWidth;
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

/// Two sums of each column over the rows of a block. A thread adds some rows up in T, then the block adds these up in
/// double, in the order of the threads' rows: each of some threads holds one sum of one column.
template <int width>
class ColumnSums {
  static_assert(2 * width <= kColumnThreads / 8);  // a thread for each sum, with 8 lanes along a row

 public:
  /// All threads of the block bring their sums of the next rows.
  template <class T>
  NORMA_DEVICE void add(const ColumnPlan& plan, const T (&first)[width], const T (&second)[width]) {
    T* shared = shared_memory<T>();  // for each thread its 2 · width numbers, number by number
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      shared[(2 * j) * threads() + thread()] = first[j];
      shared[(2 * j + 1) * threads() + thread()] = second[j];
    }
    sync_threads();
    const int number = thread() / plan.lanes;  // of the columns of lane thread() % lanes
    if (number < 2 * width) {
      for (int row = 0; row < threads() / plan.lanes; ++row) {
        total_ += static_cast<double>(shared[number * threads() + row * plan.lanes + thread() % plan.lanes]);
      }
    }
    sync_threads();
  }

  /// `sums` has two rows for each outer index and chunk: the first sum of each column, and the second.
  template <class S>
  NORMA_DEVICE void write(const ColumnPlan& plan, const ColumnPlace<S>& place, double* sums) const {
    const int number = thread() / plan.lanes;
    if (number < 2 * width && place.there) {
      sums[((place.outer * plan.chunks + place.chunk) * 2 + number % 2) * plan.columns + place.column + number / 2] =
          total_;
    }
  }

 private:
  double total_ = 0;
};

/// Calls add(row, first, second) for this thread's rows of the block, and writes the sums of what it adds to `first`
/// and `second`.
template <class S, class Add, class T = compute_t<S>>
NORMA_DEVICE void sum_columns(const ColumnPlan& plan, const ColumnPlace<S>& place, double* sums, Add add) {
  constexpr int kWidth = kVectorOf<S>;
  ColumnSums<kWidth> of_block;
  const int64_t step = kRowsInT * place.rows_at_once;
  for (int64_t begin = place.first_row; begin < place.last_row; begin += step) {
    const int64_t end = begin + step < place.last_row ? begin + step : place.last_row;
    T first[kWidth] = {};
    T second[kWidth] = {};
    for (int64_t row = begin + place.row_of_thread; row < end && place.there; row += place.rows_at_once) {
      add(row, first, second);
    }
    of_block.add(plan, first, second);
  }
  of_block.write(plan, place, sums);
}

/// Bytes of shared memory that sum_columns() takes.
template <class S>
constexpr size_t column_sum_bytes() {
  return 2 * kVectorOf<S> * kColumnThreads * sizeof(compute_t<S>);
}

/// The places where the columns of each set have left their sums: see finish.h.
struct ColumnParts {
  NormProblem problem;
  ColumnPlan plan;

  NORMA_DEVICE Part part(int64_t outer, int64_t chunk, int64_t column) const {
    const int64_t rows = problem.shape.reduce_outer;
    const int64_t begin = chunk * plan.rows_of_chunk;
    const int64_t end = begin + plan.rows_of_chunk;
    const int64_t sums = (outer * plan.chunks + chunk) * 2 * plan.columns + column;
    return {.sums = sums,
            .second_sums = sums + plan.columns,
            .pivot = outer * plan.columns + column,
            .elements = static_cast<double>((end < rows ? end : rows) - begin),
            .weight = problem.affine.present ? weight_of_column(problem, outer, column) : 0};
  }
  template <class F>
  NORMA_DEVICE void for_each_of_set(int64_t set, F f) const {
    const NormShape& shape = problem.shape;
    const int64_t outer = set / shape.kept;
    const int64_t first_column = (set - outer * shape.kept) * shape.reduce_inner;
    for (int64_t i = lane(); i < shape.reduce_inner * plan.chunks; i += kWarp) {
      const int64_t chunk = i / shape.reduce_inner;
      f(part(outer, chunk, first_column + (i - chunk * shape.reduce_inner)));
    }
  }
  /// Each column has a weight of its own.
  template <class F>
  NORMA_DEVICE void for_each_of_weight(int64_t column, F f) const {
    for (int64_t i = lane(); i < problem.shape.outer * plan.chunks; i += kWarp) {
      const int64_t outer = i / plan.chunks;
      f(part(outer, i - outer * plan.chunks, column));
    }
  }
};

}  // namespace norma::kernels::NORMA_BACKEND

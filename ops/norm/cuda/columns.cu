#include "ops/norm/cuda/finish.h"
#include "ops/norm/cuda/walks.h"

#include <algorithm>

// Columns: sets lie side by side (batch and instance norm in channels_last), or each is a few neighbouring columns
// (group norm in channels_last), and weights do not vary from row to row. Threads stand along the columns, 16 bytes
// each, and walk down the rows. Each chunk of rows has its own sums; a second kernel adds them up in a fixed order.

namespace norma::kernels::NORMA_BACKEND {

inline constexpr int kColumnThreads = 256;
/// The number of rows that a thread adds up in T before it goes on in double.
inline constexpr int64_t kRowsInT = 64;
/// The number of rows, spread over all, from which pivots are taken.
inline constexpr int kPivotRows = 8;

/// The plan by which blocks share the rows and columns of one outer index.
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
  // Few rows are cut finer, to keep the device busy.
  while (plan.rows_of_chunk > 4 * rows_at_once &&
         shape.outer * plan.tiles * ceil_div(shape.reduce_outer, plan.rows_of_chunk) < int64_t{4} * processors()) {
    plan.rows_of_chunk /= 2;
  }
  plan.chunks = ceil_div(shape.reduce_outer, plan.rows_of_chunk);
  return plan;
}

/// The place of a thread of a block.
template <class S>
struct ColumnPlace {
  static constexpr int kWidth = kVectorOf<S>;
  int64_t outer;
  int64_t chunk;
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

/// Adds up the sums of the threads that share columns, in the order of their rows; the first of them writes. `sums` has
/// two rows for each outer index and chunk: one sum of each column, and the other.
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

/// A number near those in each of `width` neighbouring columns, from rows spread over all. 0 for raw sums.
template <class S, int width, class T = compute_t<S>>
NORMA_DEVICE void find_pivots(const NormProblem& problem, int64_t columns, const S* first_row, T (&pivots)[width]) {
  if (problem.raw_sums()) {
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      pivots[j] = T(0);
    }
    return;
  }
  const int64_t all = problem.shape.reduce_outer;
  const int rows = static_cast<int>(all < kPivotRows ? all : kPivotRows);
  T first[width];
  load<S, width>(first_row, first);
  T sum[width] = {};
  for (int row = 1; row < rows; ++row) {
    T numbers[width];
    load<S, width>(first_row + all * row / rows * columns, numbers);
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      sum[j] += numbers[j] - first[j];
    }
  }
  NORMA_UNROLL
  for (int j = 0; j < width; ++j) {
    pivots[j] = first[j] + sum[j] / static_cast<T>(rows);
  }
}

/// Writes the sums of d and d² with d = x - pivot over the rows of each chunk, and the pivots of each outer index.
template <class S, class T = compute_t<S>>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kColumnThreads)
    add_columns(NormProblem problem, ColumnPlan plan, const S* x, T* pivots, double* sums) {
  constexpr int kWidth = kVectorOf<S>;
  const ColumnPlace<S> place(problem.shape, plan, block());
  T first[kWidth] = {};
  T second[kWidth] = {};
  if (place.there) {
    T pivot[kWidth];
    find_pivots(problem, plan.columns, x + place.base + place.column, pivot);
    if (place.chunk == 0 && place.row_of_thread == 0) {
      store<T, kWidth>(pivots + place.outer * plan.columns + place.column, pivot);
    }
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

/// Writes y of the rows of each chunk.
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
      T x[kWidth];
      load<S, kWidth>(arrays.x + at, x);
      positive = write_normalised(arrays, at, x, [&](int j) { return normalisers[j]; });
    }
    write_bits<kWidth>(arrays.bits, at, writes, positive);
  }
}

// --- backward -------------------------------------------------------------------------------------------------------

template <class S, class T = compute_t<S>>
NORMA_DEVICE ColumnConstants<T> column_constants(const NormProblem& problem, const BackwardArrays<S>& arrays,
                                                 int64_t outer, int64_t column) {
  const int64_t set = set_of_column(problem.shape, outer, column);
  const int64_t weight = problem.affine.present ? weight_of_column(problem, outer, column) : 0;
  return {arrays.mean[set], arrays.mean_low[set], arrays.rstd[set],
          arrays.weight == nullptr ? T(1) : arrays.weight[weight], arrays.bias == nullptr ? T(0) : arrays.bias[weight]};
}

/// Writes the sums of dz and dz · xhat over the rows of each chunk.
template <class S>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kColumnThreads)
    add_column_gradients(NormProblem problem, ColumnPlan plan, BackwardArrays<S> arrays, double* sums) {
  using T = compute_t<S>;
  constexpr int kWidth = kVectorOf<S>;
  const ColumnPlace<S> place(problem.shape, plan, block());
  T first[kWidth] = {};
  T second[kWidth] = {};
  if (place.there) {
    ColumnConstants<T> columns[kWidth];
    for (int j = 0; j < kWidth; ++j) {
      columns[j] = column_constants(problem, arrays, place.outer, place.column + j);
    }
    for (int64_t row = place.first_row + place.row_of_thread; row < place.last_row; row += place.rows_at_once) {
      const int64_t at = place.base + row * plan.columns + place.column;
      T x[kWidth];
      load<S, kWidth>(arrays.x + at, x);
      T dz[kWidth];
      load_dz(arrays, at, columns, x, dz);
      NORMA_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        const T xhat = ((x[j] - columns[j].mean) - columns[j].mean_low) * columns[j].rstd;
        first[j] += dz[j];
        second[j] = fused_multiply_add(dz[j], xhat, second[j]);
      }
    }
  }
  write_column_sums(plan, place.outer, place.chunk, place.column, place.there, first, second, sums);
}

/// Writes dx and dresidual of the rows of each chunk.
template <class S, class T = compute_t<S>>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kColumnThreads)
    write_column_gradients(NormProblem problem, ColumnPlan plan, BackwardArrays<S> arrays,
                           const InputGradient<T>* gradients) {
  constexpr int kWidth = kVectorOf<S>;
  const ColumnPlace<S> place(problem.shape, plan, block());
  if (!place.there) {
    return;
  }
  const bool deviation = arrays.centre != nullptr;
  ColumnConstants<T> columns[kWidth];
  InputGradient<T> of_columns[kWidth] = {};
  T centre[kWidth];
  T centre_low[kWidth];
  for (int j = 0; j < kWidth; ++j) {
    const int64_t set = set_of_column(problem.shape, place.outer, place.column + j);
    columns[j] = column_constants(problem, arrays, place.outer, place.column + j);
    centre[j] = deviation ? arrays.centre[set] : columns[j].mean;
    centre_low[j] = deviation ? arrays.centre_low[set] : columns[j].mean_low;
    if (!problem.fixed_stats && arrays.dx != nullptr) {
      of_columns[j] = gradients[set];
    }
  }
  for (int64_t row = place.first_row + place.row_of_thread; row < place.last_row; row += place.rows_at_once) {
    const int64_t at = place.base + row * plan.columns + place.column;
    T x[kWidth];
    load<S, kWidth>(arrays.x + at, x);
    T dz[kWidth];
    load_dz(arrays, at, columns, x, dz);
    if (arrays.dresidual != nullptr) {
      store<S, kWidth>(arrays.dresidual + at, dz);
    }
    if (arrays.dx == nullptr) {
      continue;
    }
    NORMA_UNROLL
    for (int j = 0; j < kWidth; ++j) {
      const T by_dz = columns[j].rstd * columns[j].weight;
      const T xhat = ((x[j] - centre[j]) - centre_low[j]) * columns[j].rstd;
      dz[j] = dx_of(problem.fixed_stats, dz[j], by_dz, xhat, of_columns[j]);
    }
    store<S, kWidth>(arrays.dx + at, dz);
  }
}

// --- which columns --------------------------------------------------------------------------------------------------

/// True iff these kernels cover the case: whole vectors along the columns, and weights that do not vary along the rows.
template <class S>
bool are_columns(const NormProblem& problem) {
  /// Other kernels take longer runs of one set.
  constexpr int64_t kLongestRun = 128;
  const int64_t columns = problem.shape.kept * problem.shape.reduce_inner;
  return !problem.shape.set_is_one_run() && problem.shape.reduce_inner <= kLongestRun && columns % kVectorOf<S> == 0 &&
         problem.affine.reduce_outer == 1;
}

bool columns_forward(DType dtype, const NormProblem& problem, const NormForward& arrays) {
  return dispatch_fast(dtype, [&](auto s) {
    using S = decltype(s);
    using T = compute_t<S>;
    const ColumnPlan plan = plan_columns(problem.shape, kVectorOf<S>);
    const int64_t blocks = plan.blocks(problem.shape);
    const ForwardArrays<S> typed(problem, arrays);
    if (!are_columns<S>(problem) || blocks > INT32_MAX || (arrays.bits != nullptr && plan.columns % 8 != 0) ||
        !are_aligned(typed)) {
      return false;
    }
    const Stream stream = current_stream();
    if (!problem.fixed_stats) {
      const int64_t all_columns = problem.shape.outer * plan.columns;
      const DeviceBuffer<T> pivots(all_columns);
      const DeviceBuffer<double> sums(2 * plan.chunks * all_columns);
      launch(blocks, kColumnThreads, column_sum_bytes<S>(), stream, add_columns<S>, problem, plan, typed.x,
             pivots.data(), sums.data());
      launch(blocks_for(kWarp * problem.shape.sets(), kColumnThreads),
             threads_for(kWarp * problem.shape.sets(), kColumnThreads), 0, stream, finish_statistics<S, ColumnParts>,
             problem, ColumnParts{problem, plan}, typed, pivots.data(), sums.data());
    }
    if (typed.y != nullptr) {
      launch(blocks, kColumnThreads, 0, stream, normalise_columns<S>, problem, plan, typed);
    }
    return true;
  });
}

bool columns_backward(DType dtype, const NormProblem& problem, const NormBackward& arrays) {
  const bool weights_wanted = arrays.dweight != nullptr || arrays.dbias != nullptr;
  return dispatch_fast(dtype, [&](auto s) {
    using S = decltype(s);
    using T = compute_t<S>;
    const ColumnPlan plan = plan_columns(problem.shape, kVectorOf<S>);
    const int64_t blocks = plan.blocks(problem.shape);
    // True iff each column has a weight of its own.
    const bool own_weights = problem.affine.outer_period == 1 && problem.affine.numel() == plan.columns;
    const BackwardArrays<S> typed(problem, arrays);
    if (!are_columns<S>(problem) || blocks > INT32_MAX || (weights_wanted && !own_weights) || !are_aligned(typed)) {
      return false;
    }
    const Stream stream = current_stream();
    const bool sets_wanted = arrays.dx != nullptr && !problem.fixed_stats;
    const int64_t parts = problem.shape.outer * plan.chunks;
    const DeviceBuffer<double> sums(sets_wanted || weights_wanted ? 2 * parts * plan.columns : 0);
    const DeviceBuffer<InputGradient<T>> gradients(sets_wanted ? problem.shape.sets() : 0);
    if (sums.data() != nullptr) {
      launch(blocks, kColumnThreads, column_sum_bytes<S>(), stream, add_column_gradients<S>, problem, plan, typed,
             sums.data());
    }
    if (sets_wanted) {
      launch(blocks_for(kWarp * problem.shape.sets(), kColumnThreads),
             threads_for(kWarp * problem.shape.sets(), kColumnThreads), 0, stream, finish_gradients<S, ColumnParts>,
             problem, ColumnParts{problem, plan}, typed, sums.data(), gradients.data());
    }
    if (weights_wanted) {
      launch(blocks_for(kWarp * plan.columns, kColumnThreads), threads_for(kWarp * plan.columns, kColumnThreads), 0,
             stream, finish_weights<ColumnParts, T>, plan.columns, ColumnParts{problem, plan}, sums.data(),
             typed.dweight, typed.dbias);
    }
    if (arrays.dx != nullptr || arrays.dresidual != nullptr) {
      launch(blocks, kColumnThreads, 0, stream, write_column_gradients<S>, problem, plan, typed, gradients.data());
    }
    return true;
  });
}

}  // namespace norma::kernels::NORMA_BACKEND

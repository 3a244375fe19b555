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

// --- backward -------------------------------------------------------------------------------------------------------

template <class S, class T = compute_t<S>>
NORMA_DEVICE ColumnConstants<T> column_constants(const NormProblem& problem, const BackwardArrays<S>& arrays,
                                                 int64_t outer, int64_t column) {
  const int64_t set = set_of_column(problem.shape, outer, column);
  const int64_t weight = problem.affine.present ? weight_of_column(problem, outer, column) : 0;
  return {arrays.mean[set], arrays.mean_low[set], arrays.rstd[set],
          arrays.weight == nullptr ? T(1) : arrays.weight[weight], arrays.bias == nullptr ? T(0) : arrays.bias[weight]};
}

/// The sums of dz and dz · xhat over the rows of each chunk.
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

/// The constants of each set's dx from the sums of its columns' chunks, by a warp.
template <class S, class T = compute_t<S>>
NORMA_KERNEL void finish_column_gradients(NormProblem problem, ColumnPlan plan, BackwardArrays<S> arrays,
                                          const double* sums, InputGradient<T>* gradients) {
  const NormShape& shape = problem.shape;
  const LaneTeam team;
  const int64_t warps = global_threads() / kWarp;
  for (int64_t set = global_thread() / kWarp; set < shape.sets(); set += warps) {
    const int64_t outer = set / shape.kept;
    const int64_t first_column = (set - outer * shape.kept) * shape.reduce_inner;
    double sum = 0;
    double sum_xhat = 0;
    for (int64_t i = lane(); i < shape.reduce_inner * plan.chunks; i += kWarp) {
      const int64_t chunk = i / shape.reduce_inner;
      const int64_t column = first_column + (i - chunk * shape.reduce_inner);
      const double weight =
          arrays.weight == nullptr ? 1.0 : static_cast<double>(arrays.weight[weight_of_column(problem, outer, column)]);
      const double* of_chunk = sums + (outer * plan.chunks + chunk) * 2 * plan.columns;
      sum = fused_multiply_add(weight, of_chunk[column], sum);
      sum_xhat = fused_multiply_add(weight, of_chunk[plan.columns + column], sum_xhat);
    }
    team.sum(sum, sum_xhat);
    if (lane() == 0) {
      gradients[set] = input_gradient(problem, arrays.rstd[set], sum, sum_xhat);
    }
  }
}

/// dweight and dbias of each column: its sums over all outer indices and chunks, by a warp. Either may be null.
template <class T>
NORMA_KERNEL void finish_column_weights(int64_t columns, int64_t parts, const double* sums, T* dweight, T* dbias) {
  const LaneTeam team;
  const int64_t warps = global_threads() / kWarp;
  for (int64_t column = global_thread() / kWarp; column < columns; column += warps) {
    double of_bias = 0;
    double of_weight = 0;
    for (int64_t part = lane(); part < parts; part += kWarp) {
      of_bias += sums[2 * part * columns + column];
      of_weight += sums[(2 * part + 1) * columns + column];
    }
    team.sum(of_bias, of_weight);
    if (lane() == 0 && dweight != nullptr) {
      dweight[column] = static_cast<T>(of_weight);
    }
    if (lane() == 0 && dbias != nullptr) {
      dbias[column] = static_cast<T>(of_bias);
    }
  }
}

/// dx and dresidual of the rows of each chunk.
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
      dz[j] =
          problem.fixed_stats
              ? dz[j] * by_dz
              : fused_multiply_add(dz[j], by_dz, fused_multiply_add(xhat, of_columns[j].by_xhat, of_columns[j].shift));
    }
    store<S, kWidth>(arrays.dx + at, dz);
  }
}

// --- which columns --------------------------------------------------------------------------------------------------

/// True iff these kernels have the case: whole vectors along the columns, and weights that do not vary along the rows.
template <class S>
bool are_columns(const NormProblem& problem) {
  /// Longer runs of one set are taken by other kernels.
  constexpr int64_t kLongestRun = 128;
  const int64_t columns = problem.shape.kept * problem.shape.reduce_inner;
  return problem.walk != Walk::rows && problem.shape.reduce_inner <= kLongestRun && columns % kVectorOf<S> == 0 &&
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
      launch(blocks_for(all_columns, kColumnThreads), threads_for(all_columns, kColumnThreads), 0, stream,
             find_column_pivots<S>, problem, typed.x, pivots.data());
      launch(blocks, kColumnThreads, column_sum_bytes<S>(), stream, add_columns<S>, problem, plan, typed.x,
             pivots.data(), sums.data());
      launch(blocks_for(kWarp * problem.shape.sets(), kColumnThreads),
             threads_for(kWarp * problem.shape.sets(), kColumnThreads), 0, stream, finish_column_statistics<S>, problem,
             plan, typed, pivots.data(), sums.data());
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
    // A weight of its own for each column.
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
             threads_for(kWarp * problem.shape.sets(), kColumnThreads), 0, stream, finish_column_gradients<S>, problem,
             plan, typed, sums.data(), gradients.data());
    }
    if (weights_wanted) {
      launch(blocks_for(kWarp * plan.columns, kColumnThreads), threads_for(kWarp * plan.columns, kColumnThreads), 0,
             stream, finish_column_weights<T>, plan.columns, parts, sums.data(), typed.dweight, typed.dbias);
    }
    if (arrays.dx != nullptr || arrays.dresidual != nullptr) {
      launch(blocks, kColumnThreads, 0, stream, write_column_gradients<S>, problem, plan, typed, gradients.data());
    }
    return true;
  });
}

}  // namespace norma::kernels::NORMA_BACKEND

#include "ops/norm/cuda/loops.h"

// Columns: sets lie side by side (batch and instance norm in channels_last), or each is a few neighbouring columns
// (group norm in channels_last), and weights do not vary from row to row. Threads stand along the columns, 16 bytes
// each, and walk down the rows. Each chunk of rows has its own sums; what needs those of a whole set adds them up in a
// fixed order.

namespace norma::kernels::NORMA_BACKEND {

// --- how threads share rows and columns, and how they add up --------------------------------------------------------

/// The number of rows that a thread adds up in T before it goes on in double.
inline constexpr int64_t kRowsInT = 64;

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
    const int64_t rest = quotient(which, plan.tiles);
    const int64_t tile = which - rest * plan.tiles;
    outer = quotient(rest, plan.chunks);
    chunk = rest - outer * plan.chunks;
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

/// The stats of a set.
template <class T>
struct ColumnStats {
  T mean;
  T mean_low;
  T rstd;
};

/// Calls f(j, stats, set, weight) for `count` columns from `column` on, with the numbers of their sets and weights. A
/// thread may have so few rows that to find these for each column alone would take longer.
template <int count, class Arrays, class F>
NORMA_DEVICE void for_each_column(const NormProblem& problem, const Arrays& arrays, int64_t outer, int64_t column,
                                  F f) {
  const int64_t kept = quotient(column, problem.shape.reduce_inner);
  Place place{.outer = outer, .a = 0, .kept = kept, .b = column - kept * problem.shape.reduce_inner};
  const int64_t step = problem.affine.inner == 1 ? 0 : 1;
  int64_t weight = 0;
  bool another_set = true;
  ColumnStats<typename Arrays::T> stats{};
  NORMA_UNROLL
  for (int j = 0; j < count; ++j) {
    const int64_t set = place.set(problem.shape);
    weight += step;
    if (another_set) {
      weight = problem.affine.present ? weight_of(problem.affine, place) : 0;
      stats = {arrays.mean[set], arrays.mean_low[set], arrays.rstd[set]};
    }
    f(j, stats, set, weight);
    another_set = ++place.b == problem.shape.reduce_inner;
    if (another_set) {
      place.b = 0;
      ++place.kept;
    }
  }
}

/// Two sums of each column over the rows of a block. A thread adds some rows up in T, then the block adds these up in
/// double, in the order of the threads' rows: each of some threads holds one sum of one column.
template <int width>
class ColumnSums {
  static_assert(2 * width <= kColumnThreads / kMostColumnLanes);  // a thread for each sum

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

/// The places where the columns of each set have left their sums: see Parts in loops.h.
struct ColumnParts {
  NormProblem problem;
  ColumnPlan plan;

  NORMA_DEVICE Part part(int64_t outer, int64_t chunk, int64_t column) const {
    const int64_t rows = problem.shape.reduce_outer;
    const int64_t begin = chunk * plan.rows_of_chunk;
    const int64_t end = begin + plan.rows_of_chunk;
    const int64_t sums = (outer * plan.chunks + chunk) * 2 * plan.columns + column;
    const int64_t kept = quotient(column, problem.shape.reduce_inner);
    const Place place{.outer = outer, .a = 0, .kept = kept, .b = column - kept * problem.shape.reduce_inner};
    return {.sums = sums,
            .second_sums = sums + plan.columns,
            .pivot = outer * plan.columns + column,
            .elements = static_cast<double>((end < rows ? end : rows) - begin),
            .weight = problem.affine.present ? weight_of(problem.affine, place) : 0};
  }
  template <class F>
  NORMA_DEVICE void for_each_of_set(int64_t set, F f) const {
    const NormShape& shape = problem.shape;
    const int64_t outer = quotient(set, shape.kept);
    const int64_t first_column = (set - outer * shape.kept) * shape.reduce_inner;
    for (int64_t i = lane(); i < shape.reduce_inner * plan.chunks; i += kWarp) {
      const int64_t chunk = quotient(i, shape.reduce_inner);
      f(part(outer, chunk, first_column + (i - chunk * shape.reduce_inner)));
    }
  }
  /// Each column has a weight of its own.
  template <class F>
  NORMA_DEVICE void for_each_of_weight(int64_t column, F f) const {
    for (int64_t i = lane(); i < problem.shape.outer * plan.chunks; i += kWarp) {
      const int64_t outer = quotient(i, plan.chunks);
      f(part(outer, i - outer * plan.chunks, column));
    }
  }
};

// --- forward --------------------------------------------------------------------------------------------------------

/// The number of rows, spread over all, from which pivots are taken.
inline constexpr int kPivotRows = 8;

/// Numbers near those in each of this thread's columns, from rows spread over all. 0 for raw sums. All threads of the
/// block call it; each loads one row at most.
template <class S, int width, class T = compute_t<S>>
NORMA_DEVICE void find_pivots(const NormProblem& problem, const ColumnPlan& plan, const ColumnPlace<S>& place,
                              const S* x, T (&pivots)[width]) {
  NORMA_UNROLL
  for (int j = 0; j < width; ++j) {
    pivots[j] = T(0);
  }
  if (problem.raw_sums()) {
    return;
  }
  const int64_t all = problem.shape.reduce_outer;
  const int rows = static_cast<int>(all < kPivotRows ? all : kPivotRows);
  T* shared = shared_memory<T>();  // of each row a number for each element of a vector and lane
  const auto at = [&](int row, int j) { return (row * width + j) * plan.lanes + place.lane_of_row; };
  const int mine = place.row_of_thread;
  if (place.there && mine < rows) {
    T numbers[width];
    load<S, width>(x + place.base + all * mine / rows * plan.columns + place.column, numbers);
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      shared[at(mine, j)] = numbers[j];
    }
  }
  sync_threads();
  if (place.there && mine < width) {  // the pivot of one column takes the place of its first number
    const T first = shared[at(0, mine)];
    T sum = 0;
    for (int row = 1; row < rows; ++row) {
      sum += shared[at(row, mine)] - first;
    }
    shared[at(0, mine)] = first + sum / static_cast<T>(rows);
  }
  sync_threads();
  if (place.there) {
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      pivots[j] = shared[at(0, j)];
    }
  }
  sync_threads();
}

/// Writes the sums of d and d² with d = x - pivot over the rows of each chunk, and the pivots of each outer index.
template <class S, class T = compute_t<S>>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kColumnThreads)
    add_columns(NormProblem problem, ColumnPlan plan, const S* x, T* pivots, double* sums) {
  constexpr int kWidth = kVectorOf<S>;
  const ColumnPlace<S> place(problem.shape, plan, block());
  T pivot[kWidth];
  find_pivots(problem, plan, place, x, pivot);
  if (place.there && place.chunk == 0 && place.row_of_thread == 0) {
    store<T, kWidth>(pivots + place.outer * plan.columns + place.column, pivot);
  }
  sum_columns(plan, place, sums, [&](int64_t row, T(&first)[kWidth], T(&second)[kWidth]) {
    T numbers[kWidth];
    load<S, kWidth>(x + place.base + row * plan.columns + place.column, numbers);
    NORMA_UNROLL
    for (int j = 0; j < kWidth; ++j) {
      const T d = numbers[j] - pivot[j];
      first[j] += d;
      second[j] = fused_multiply_add(d, d, second[j]);
    }
  });
}

/// Writes y of the rows of each chunk.
template <class S>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kColumnThreads)
    normalize_columns(NormProblem problem, ColumnPlan plan, ForwardArrays<S> arrays) {
  using T = compute_t<S>;
  constexpr int kWidth = kVectorOf<S>;
  const ColumnPlace<S> place(problem.shape, plan, block());
  Normalizer<T> normalizers[kWidth] = {};
  if (place.there) {
    for_each_column<kWidth>(
        problem, arrays, place.outer, place.column, [&](int j, const ColumnStats<T>& stats, int64_t, int64_t weight) {
          normalizers[j] = {stats.mean, stats.mean_low,
                            arrays.weight == nullptr ? stats.rstd : stats.rstd * arrays.weight[weight],
                            arrays.bias == nullptr ? T(0) : arrays.bias[weight]};
        });
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
      positive = write_normalized(arrays, at, x, [&](int j) { return normalizers[j]; });
    }
    write_bits<kWidth>(arrays.bits, at, writes, positive);
  }
}

// --- backward -------------------------------------------------------------------------------------------------------

/// Finds the constants of this thread's columns, and calls f(j, set) for each.
template <class S, int width, class F, class T = compute_t<S>>
NORMA_DEVICE void column_constants(const NormProblem& problem, const BackwardArrays<S>& arrays,
                                   const ColumnPlace<S>& place, ColumnConstants<T> (&columns)[width], F f) {
  for_each_column<width>(
      problem, arrays, place.outer, place.column, [&](int j, const ColumnStats<T>& stats, int64_t set, int64_t weight) {
        columns[j] = {stats.mean, stats.mean_low, stats.rstd, arrays.weight == nullptr ? T(1) : arrays.weight[weight],
                      arrays.bias == nullptr ? T(0) : arrays.bias[weight]};
        f(j, set);
      });
}

/// Writes the sums of dz and dz · xhat over the rows of each chunk.
template <class S>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kColumnThreads)
    add_column_gradients(NormProblem problem, ColumnPlan plan, BackwardArrays<S> arrays, double* sums) {
  using T = compute_t<S>;
  constexpr int kWidth = kVectorOf<S>;
  const ColumnPlace<S> place(problem.shape, plan, block());
  ColumnConstants<T> columns[kWidth] = {};
  if (place.there) {
    column_constants(problem, arrays, place, columns, [](int, int64_t) {});
  }
  sum_columns(plan, place, sums, [&](int64_t row, T(&first)[kWidth], T(&second)[kWidth]) {
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
  });
}

/// Adds up the sums of all chunks for the columns of this block's tile, each of which is a set with a weight of its
/// own, and returns the constants of their dx, in shared memory. The first chunk's blocks write dweight and dbias.
template <class S, class T = compute_t<S>>
NORMA_DEVICE const InputGradient<T>* finish_tile(const NormProblem& problem, const ColumnPlan& plan,
                                                 const ColumnPlace<S>& place, const BackwardArrays<S>& arrays,
                                                 const double* sums) {
  const int tile_columns = plan.lanes * kVectorOf<S>;
  auto* shared = shared_memory<double>();  // a pair of sums for each thread, then the constants
  auto* of_tile = reinterpret_cast<InputGradient<T>*>(shared + 2 * threads());
  const int mine = thread() % tile_columns;
  const int64_t column = place.column - place.lane_of_row * kVectorOf<S> + mine;
  const int parts = threads() / tile_columns;  // threads that share a column
  const bool there = column < plan.columns;
  double sum = 0;
  double sum_xhat = 0;
  for (int64_t chunk = thread() / tile_columns; chunk < plan.chunks && there; chunk += parts) {
    const double* of_chunk = sums + chunk * 2 * plan.columns + column;
    sum += of_chunk[0];
    sum_xhat += of_chunk[plan.columns];
  }
  shared[2 * thread()] = sum;
  shared[2 * thread() + 1] = sum_xhat;
  sync_threads();
  if (thread() < tile_columns && there) {
    for (int part = 1; part < parts; ++part) {
      sum += shared[2 * (part * tile_columns + mine)];
      sum_xhat += shared[2 * (part * tile_columns + mine) + 1];
    }
    if (place.chunk == 0) {
      store_weight_gradient(arrays, column, sum, sum_xhat);
    }
    const double weight = arrays.weight == nullptr ? 1.0 : static_cast<double>(arrays.weight[column]);
    of_tile[mine] = input_gradient(problem, arrays.mean[column], arrays.rstd[column], weight * sum, weight * sum_xhat);
  }
  sync_threads();
  return of_tile;
}

/// Bytes of shared memory that finish_tile() takes.
template <class S>
constexpr size_t finish_tile_bytes() {
  return kColumnThreads * 2 * sizeof(double) + 8 * kVectorOf<S> * sizeof(InputGradient<compute_t<S>>);
}

/// Writes dx and dresidual of the rows of each chunk. gradients: of each set. by_tile: null instead; finish_tile()
/// makes them, and saves a launch.
template <class S, bool by_tile, class T = compute_t<S>>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kColumnThreads)
    write_column_gradients(NormProblem problem, ColumnPlan plan, BackwardArrays<S> arrays,
                           const InputGradient<T>* gradients, const double* sums) {
  constexpr int kWidth = kVectorOf<S>;
  const ColumnPlace<S> place(problem.shape, plan, block());
  if constexpr (by_tile) {
    gradients = finish_tile(problem, plan, place, arrays, sums);
  }
  if (!place.there) {
    return;
  }
  ColumnConstants<T> columns[kWidth];
  InputGradient<T> of_columns[kWidth] = {};
  column_constants(problem, arrays, place, columns, [&](int j, int64_t set) {
    if (!problem.fixed_stats && arrays.dx != nullptr) {
      of_columns[j] = by_tile ? gradients[place.lane_of_row * kWidth + j] : gradients[set];
    }
  });
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
      const T xhat = ((x[j] - columns[j].mean) - columns[j].mean_low) * columns[j].rstd;
      dz[j] = dx_of(problem.fixed_stats, dz[j], by_dz, xhat, of_columns[j]);
    }
    store<S, kWidth>(arrays.dx + at, dz);
  }
}

// --- which columns --------------------------------------------------------------------------------------------------

/// True iff these kernels cover the case: whole vectors along the columns, and weights that do not vary along the rows.
template <class S>
bool are_columns(const NormProblem& problem) {
  // runs.cu takes longer runs of one set, and norm.cu those whose weights vary within a run.
  constexpr int64_t kLongestRun = 128;
  const int64_t columns = problem.shape.kept * problem.shape.reduce_inner;
  return !problem.shape.set_is_one_run() && problem.shape.reduce_inner <= kLongestRun && columns % kVectorOf<S> == 0 &&
         problem.affine.reduce_outer == 1;
}

bool columns_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  return dispatch_fast(dtype, [&](auto s) {
    using S = decltype(s);
    using T = compute_t<S>;
    // All blocks of either kernel run at once: a second round of a few would take as long as the first.
    const int64_t resident = std::min(resident_blocks(add_columns<S>, kColumnThreads, column_sum_bytes<S>()),
                                      resident_blocks(normalize_columns<S>, kColumnThreads, 0));
    const ColumnPlan plan = plan_columns(problem.shape, kVectorOf<S>, resident);
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
      launch_loop(kWarp * problem.shape.sets(), finish_statistics<S, ColumnParts>, problem, ColumnParts{problem, plan},
                  typed, pivots.data(), sums.data());
    }
    if (typed.y != nullptr) {
      launch(blocks, kColumnThreads, 0, stream, normalize_columns<S>, problem, plan, typed);
    }
    return true;
  });
}

bool columns_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  const bool weights_wanted = arrays.dweight != nullptr || arrays.dbias != nullptr;
  return dispatch_fast(dtype, [&](auto s) {
    using S = decltype(s);
    using T = compute_t<S>;
    const ColumnPlan plan = plan_columns(
        problem.shape, kVectorOf<S>, resident_blocks(add_column_gradients<S>, kColumnThreads, column_sum_bytes<S>()));
    const int64_t blocks = plan.blocks(problem.shape);
    // True iff each column has a weight of its own.
    const bool own_weights = problem.affine.outer_period == 1 && problem.affine.numel() == plan.columns;
    const BackwardArrays<S> typed(problem, arrays);
    if (!are_columns<S>(problem) || blocks > INT32_MAX || (weights_wanted && !own_weights) || !are_aligned(typed)) {
      return false;
    }
    const Stream stream = current_stream();
    const bool sets_wanted = arrays.dx != nullptr && !problem.fixed_stats;
    const bool writes = arrays.dx != nullptr || arrays.dresidual != nullptr;
    const bool each_column_a_set = problem.shape.outer == 1 && problem.shape.reduce_inner == 1;
    const bool by_tile =
        writes && (sets_wanted || weights_wanted) && each_column_a_set && (own_weights || !problem.affine.present);
    const int64_t parts = problem.shape.outer * plan.chunks;
    const DeviceBuffer<double> sums(sets_wanted || weights_wanted ? 2 * parts * plan.columns : 0);
    const DeviceBuffer<InputGradient<T>> gradients(sets_wanted && !by_tile ? problem.shape.sets() : 0);
    if (sums.data() != nullptr) {
      launch(blocks, kColumnThreads, column_sum_bytes<S>(), stream, add_column_gradients<S>, problem, plan, typed,
             sums.data());
    }
    if (by_tile) {
      launch(blocks, kColumnThreads, finish_tile_bytes<S>(), stream, write_column_gradients<S, true>, problem, plan,
             typed, gradients.data(), sums.data());
      return true;
    }
    if (sums.data() != nullptr) {
      const int64_t sets = sets_wanted ? problem.shape.sets() : 0;
      const int64_t weights = weights_wanted ? plan.columns : 0;
      launch_loop(kWarp * (sets + weights), finish_gradients<S, ColumnParts>, problem, sets, weights,
                  ColumnParts{problem, plan}, typed, sums.data(), gradients.data());
    }
    if (writes) {
      launch(blocks, kColumnThreads, 0, stream, write_column_gradients<S, false>, problem, plan, typed,
             gradients.data(), sums.data());
    }
    return true;
  });
}

}  // namespace norma::kernels::NORMA_BACKEND

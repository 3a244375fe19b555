#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/norm/cpu/columns.cpp"
#include "core/simd/foreach_target.h"

#include "ops/norm/cpu/column_sums.h"
#include "ops/norm/cpu/columns.h"
#include "ops/norm/cpu/weight_gradients.h"

#include <cmath>
#include <numeric>

// Columns: sets lie side by side (batch norm and instance norm in channels_last, layer norm 2d in NCHW), or each set is
// a few neighbouring columns (group norm in channels_last, batch norm of small images in NCHW). A wide row of columns
// is the unit of work; every column has its own sums.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

namespace {

/// The fewest columns of a wide row.
constexpr int64_t kMinWidth = 128;
/// The most columns of a row before it is cut, so that rows of sums stay in L1, and the most of a cut tile.
constexpr int64_t kMaxWidth = 2048;
constexpr int64_t kMaxColumns = 1024;
constexpr int64_t kMinColumns = 64;
/// Rows of a chunk, which has sums and constants of its own. It has fewer if there were less than kFewChunks otherwise.
constexpr int64_t kChunkRows = 64;
constexpr int64_t kFewChunks = 32;
/// Rows from which a pivot is taken.
constexpr int64_t kPivotRows = 8;

/// The forward pass of one thread.
template <class S, class T = compute_t<S>>
class ColumnsForward {
 public:
  ColumnsForward(const NormProblem& problem, const NormArrays<S>& arrays, const ColumnTiling& tiling, Scratch& scratch)
      : problem_(problem), arrays_(arrays), along_(along_of(problem.affine)), out_(streams(problem, sizeof(S))) {
    for (T** row : {&pivot_, &part_sum_, &part_squares_, &mean_, &mean_low_, &scale_, &shift_, &weight_}) {
      *row = scratch.take<T>(tiling.width);
    }
    sum_ = scratch.take<double>(tiling.width);
    squares_ = scratch.take<double>(tiling.width);
    if (arrays.activation != Activation::identity || arrays.residual != nullptr) {
      z_ = scratch.take<T>(tiling.width);
    }
  }

  /// A pivot near the mean of each set, from a few rows. These lie far apart, since neighbours in an image are alike:
  /// where a single pivot is far from the mean, all sets of the tile are added up a second time.
  void find_pivots(const ColumnTile& tile, T* pivots) {
    const S* x = arrays_.x + tile.offset;
    for (int64_t set = 0; set < tile.sets; ++set) {
      pivots[set] = problem_.raw_sums() ? T(0) : static_cast<T>(x[set * tile.neighbours]);
    }
    if (problem_.raw_sums()) {
      return;
    }
    clear_sums(tile, pivots);
    const int64_t rows = std::min(kPivotRows, tile.rows);
    for (int64_t i = 0; i < rows; ++i) {
      constexpr double kGoldenRatio = 0.6180339887498949;  // its multiples fill [0, 1) evenly, at no regular distance
      const double place = kGoldenRatio * static_cast<double>(i);
      const int64_t row = tile.rows == rows
                              ? i
                              : static_cast<int64_t>((place - std::floor(place)) * static_cast<double>(tile.rows - 1));
      add_shifted_rows<1>(tile.width_of(row), x + row * tile.stride, tile.stride, pivot_, part_sum_, part_squares_);
    }
    move_to_double(tile.width, part_sum_, sum_);
    tile.fold(sum_);
    tile.sum_sets<T>(sum_, nullptr, sum_);
    const auto count = static_cast<double>(tile.set_elements(rows));
    for (int64_t set = 0; set < tile.sets; ++set) {
      pivots[set] = static_cast<T>(pivots[set] + sum_[set] / count);
    }
  }

  /// Puts the sums of d and d² of each set over some rows into `sum` and `squares`.
  void sums_of(const ColumnTile& tile, int64_t begin, int64_t end, const T* pivots, double* sum, double* squares) {
    add_up(tile, begin, end, pivots);
    tile.sum_sets<T>(sum_, nullptr, sum);
    tile.sum_sets<T>(squares_, nullptr, squares);
  }

  /// Writes y of some rows.
  void apply(const ColumnTile& tile, int64_t begin, int64_t end) {
    prepare(tile);
    for_each_row_from_the_end(tile, begin, end, sizeof(S), [&](int64_t row) { apply_row(tile, row); });
  }

 private:
  void clear_sums(const ColumnTile& tile, const T* pivots) {
    tile.spread(pivot_, [&](int64_t set) { return pivots[set]; });
    std::fill_n(part_sum_, tile.width, T(0));
    std::fill_n(part_squares_, tile.width, T(0));
    std::fill_n(sum_, tile.width, 0.0);
    std::fill_n(squares_, tile.width, 0.0);
  }

  /// Adds up sums in sum_ and squares_, one number per column.
  void add_up(const ColumnTile& tile, int64_t begin, int64_t end, const T* pivots) {
    clear_sums(tile, pivots);
    const S* x = arrays_.x + tile.offset;
    int64_t row = begin;
    while (row < end) {
      const int64_t stop = std::min(end, row + rows_in_t(tile));
      for (; row + 4 <= std::min(stop, tile.rows - 1); row += 4) {
        add_shifted_rows<4>(tile.width, x + row * tile.stride, tile.stride, pivot_, part_sum_, part_squares_);
      }
      for (; row < stop; ++row) {
        add_shifted_rows<1>(tile.width_of(row), x + row * tile.stride, tile.stride, pivot_, part_sum_, part_squares_);
      }
      move_to_double(tile.width, part_sum_, sum_);
      move_to_double(tile.width, part_squares_, squares_);
    }
    tile.fold(sum_);
    tile.fold(squares_);
  }

  /// Computes mean, mean_low, scale and shift of each column.
  void prepare(const ColumnTile& tile) {
    if (tile.is(prepared_)) {
      return;
    }
    prepared_ = tile;
    weights_ = affine_offset(problem_.affine, tile.outer);
    tile.spread(mean_, [&](int64_t set) { return arrays_.mean[tile.first_set + set]; });
    tile.spread(mean_low_, [&](int64_t set) { return arrays_.mean_low[tile.first_set + set]; });
    tile.spread(scale_, [&](int64_t set) { return arrays_.rstd[tile.first_set + set]; });
    if (along_ == Along::columns) {
      gather_columns(problem_.affine, tile, arrays_.weight, weight_);
      gather_columns(problem_.affine, tile, arrays_.bias, shift_);
      for (int64_t j = 0; j < tile.width; ++j) {
        scale_[j] *= weight_[j];
      }
    }
  }

  void apply_row(const ColumnTile& tile, int64_t row) const {
    const int64_t width = tile.width_of(row);
    const int64_t offset = tile.offset + row * tile.stride;
    const auto run = [&](auto scale, auto shift) {
      const S* x = arrays_.x + offset;
      S* y = arrays_.y + offset;
      if (z_ == nullptr) {
        apply_run(width, x, y, Varying<T>{mean_}, Varying<T>{mean_low_}, scale, shift, out_);
      } else {
        activate_run(arrays_.activation, width, x, arrays_.residual == nullptr ? nullptr : arrays_.residual + offset, y,
                     arrays_.bits == nullptr ? nullptr : arrays_.bits + offset / 8, z_, Varying<T>{mean_},
                     Varying<T>{mean_low_}, scale, shift, out_);
      }
    };
    const Varying<T> scale{scale_};
    switch (along_) {
      case Along::none: return run(scale, Same<T>{0});
      case Along::columns: return run(scale, Varying<T>{shift_});
      case Along::rows:
        return run(Times{scale, Same<T>{arrays_.weight[weights_ + row]}}, Same<T>{arrays_.bias[weights_ + row]});
      case Along::both: {
        const int64_t at = weights_ + tile.first_kept * tile.neighbours + tile.weights_of(row);
        return run(Times{scale, Varying<T>{arrays_.weight + at}}, Varying<T>{arrays_.bias + at});
      }
    }
  }

  const NormProblem& problem_;
  const NormArrays<S>& arrays_;
  Along along_;
  StreamingStore out_;
  int64_t weights_ = 0;  ///< where the weights of the tile's outer index begin
  ColumnTile prepared_;  ///< the tile whose constants stand in mean_ to weight_
  T* mean_;
  T* mean_low_;
  T* scale_;
  T* shift_;
  T* weight_;
  T* pivot_;
  T* part_sum_;  ///< sums of a few rows, which move to sum_ and squares_ in time
  T* part_squares_;
  double* sum_;
  double* squares_;
  T* z_ = nullptr;
};

/// Takes one tile after the other.
template <class S>
void forward_by_tiles(const NormProblem& problem, const NormArrays<S>& arrays, const ColumnTiling& tiling) {
  using T = compute_t<S>;
  const int64_t task_elements = std::max<int64_t>(1, problem.shape.numel() / tiling.tasks());
  parallel_for(0, tiling.tasks(), ceil_div(kPointwiseGrain, task_elements), [&](int64_t begin, int64_t end) {
    Scratch scratch;
    ColumnsForward<S> columns(problem, arrays, tiling, scratch);
    T* pivots = scratch.take<T>(tiling.sets_per_tile);
    double* chunk = scratch.take<double>(2 * tiling.sets_per_tile);
    double* total = scratch.take<double>(2 * tiling.sets_per_tile);
    for (int64_t task = begin; task < end; ++task) {
      const ColumnTile tile = tiling.tile(task);
      if (!problem.fixed_stats) {
        columns.find_pivots(tile, pivots);
        const auto add_up = [&] {
          std::fill_n(total, 2 * tile.sets, 0.0);
          for (int64_t i = 0; i < tiling.chunks; ++i) {
            columns.sums_of(tile, tiling.first_row(i), tiling.last_row(i, tile), pivots, chunk, chunk + tile.sets);
            for (int64_t j = 0; j < 2 * tile.sets; ++j) {
              total[j] += chunk[j];
            }
          }
        };
        add_up();
        const auto count = static_cast<double>(problem.shape.set_size());
        if (!problem.raw_sums() && move_far_pivots(count, tile.sets, pivots, total, total + tile.sets) > 0)
            [[unlikely]] {
          add_up();
        }
        store_sets(problem, arrays, tile.first_set, tile.sets, pivots, total, total + tile.sets);
      }
      if (arrays.y != nullptr) {
        columns.apply(tile, 0, tile.rows);
      }
    }
  });
}

/// Takes all tiles at once, chunk by chunk.
template <class S>
void forward_by_chunks(const NormProblem& problem, const NormArrays<S>& arrays, const ColumnTiling& tiling) {
  using T = compute_t<S>;
  const int64_t sets = problem.shape.sets();
  const int64_t pieces = tiling.pieces();
  const int64_t grain = ceil_div(kPointwiseGrain, std::max<int64_t>(1, problem.shape.numel() / pieces));
  if (!problem.fixed_stats) {
    Scratch shared;
    T* pivots = shared.take<T>(sets);
    double* chunks = shared.take<double>(2 * sets * tiling.chunks);  // each has the sums of all sets, then squares
    double* total = shared.take<double>(2 * sets);
    {
      ColumnsForward<S> columns(problem, arrays, tiling, shared);
      for (int64_t task = 0; task < tiling.tasks(); ++task) {
        const ColumnTile tile = tiling.tile(task);
        columns.find_pivots(tile, pivots + tile.first_set);
      }
    }
    const auto add_up = [&] {
      parallel_for(0, pieces, grain, [&](int64_t begin, int64_t end) {
        Scratch scratch;
        ColumnsForward<S> columns(problem, arrays, tiling, scratch);
        for (int64_t i = begin; i < end; ++i) {
          const auto [tile, chunk, first, last] = tiling.piece(i);
          double* to = chunks + 2 * sets * chunk + tile.first_set;
          columns.sums_of(tile, first, last, pivots + tile.first_set, to, to + sets);
        }
      });
      std::fill_n(total, 2 * sets, 0.0);
      add_chunks(tiling.chunks, 2 * sets, chunks, total);
    };
    add_up();
    const auto count = static_cast<double>(problem.shape.set_size());
    if (!problem.raw_sums() && move_far_pivots(count, sets, pivots, total, total + sets) > 0) [[unlikely]] {
      add_up();
    }
    store_sets(problem, arrays, 0, sets, pivots, total, total + sets);
  }
  if (arrays.y == nullptr) {
    return;
  }
  parallel_for(0, pieces, grain, [&](int64_t begin, int64_t end) {
    Scratch scratch;
    ColumnsForward<S> columns(problem, arrays, tiling, scratch);
    for (int64_t i = end - 1; i >= begin; --i) {
      const ColumnTiling::Piece piece = tiling.piece(i);
      columns.apply(piece.tile, piece.begin, piece.end);
    }
  });
}

}  // namespace

Along along_of(const AffineShape& affine) {
  if (!affine.present) {
    return Along::none;
  }
  const bool across = affine.kept > 1 || affine.inner > 1;
  if (affine.reduce_outer > 1) {
    return across ? Along::both : Along::rows;
  }
  return Along::columns;
}

ColumnTiling::ColumnTiling(const NormProblem& problem, int64_t arrays, int64_t element_bytes)
    : shape(problem.shape), along(along_of(problem.affine)), weight_period(problem.affine.reduce_outer) {
  constexpr int64_t kChunkBytes = 384 * 1024;
  sets_per_tile = shape.kept;
  if (shape.kept * shape.reduce_inner > kMaxWidth) {
    // A tile has as many columns as fit in the cache. Backward reads two arrays but may fill it twice as far, since
    // short pieces of rows cost more. Where each column is a set, the number is a multiple of 32, a few vectors. Else
    // the elements of a tile are a multiple of 8, so that its bits begin with a byte.
    const int64_t column_bytes = shape.reduce_outer * element_bytes;
    const int64_t wanted = std::clamp(kCacheBytes / column_bytes, kMinColumns, kMaxColumns);
    sets_per_tile = std::clamp<int64_t>(wanted / shape.reduce_inner, 1, shape.kept);
    sets_per_tile = ceil_div(shape.kept, ceil_div(shape.kept, sets_per_tile));  // tiles of about the same size
    const int64_t multiple = shape.reduce_inner == 1 ? 32 : 8 / std::gcd<int64_t>(8, shape.reduce_inner);
    sets_per_tile = ceil_div(sets_per_tile, multiple) * multiple;
  }
  tiles = ceil_div(shape.kept, sets_per_tile);
  const ColumnTile first = tile(0, 0);
  width = first.width;
  chunks = std::clamp<int64_t>(ceil_div(first.rows * width * element_bytes * arrays, kChunkBytes), 1, kMaxPartials);
  chunks = std::min(chunks, std::max(kFewChunks, first.rows / kChunkRows));
  chunks = chunks > 2 ? ceil_div(chunks, 4) * 4 : chunks;  // so that threads share them evenly
  rows_per_chunk = ceil_div(first.rows, chunks);
  chunks = ceil_div(first.rows, rows_per_chunk);
}

bool ColumnTiling::tile_by_tile() const {
  const int64_t threads = in_parallel() ? 1 : num_threads();
  return chunks == 1 || tasks() % threads == 0 || tasks() >= 4 * threads;
}

ColumnTile ColumnTiling::tile(int64_t outer, int64_t number) const {
  ColumnTile t;
  t.outer = outer;
  t.number = number;
  t.first_kept = number * sets_per_tile;
  t.first_set = outer * shape.kept + t.first_kept;
  t.sets = std::min(sets_per_tile, shape.kept - t.first_kept);
  t.neighbours = shape.reduce_inner;
  t.columns = t.sets * t.neighbours;
  t.offset = (outer * shape.reduce_outer * shape.kept + t.first_kept) * shape.reduce_inner;
  if (along != Along::rows && t.sets == shape.kept && t.columns < kMinWidth) {
    t.copies = std::min(ceil_div(kMinWidth, t.columns), shape.reduce_outer);
    if (along == Along::both && weight_period < shape.reduce_outer) {  // wide rows begin where the weights do
      t.copies = std::min(t.copies, weight_period);
      while (weight_period % t.copies != 0) {
        ++t.copies;
      }
    }
  }
  t.weight_rows = along == Along::both ? ceil_div(weight_period, t.copies) : 1;
  t.rows = ceil_div(shape.reduce_outer, t.copies);
  t.width = t.columns * t.copies;
  t.last_width = (shape.reduce_outer - (t.rows - 1) * t.copies) * t.columns;
  t.stride = shape.kept * shape.reduce_inner * t.copies;
  return t;
}

template <class S>
void columns_forward_of(const NormProblem& problem, const NormArrays<S>& arrays) {
  const ColumnTiling tiling(problem, 1, sizeof(S));
  tiling.tile_by_tile() ? forward_by_tiles(problem, arrays, tiling) : forward_by_chunks(problem, arrays, tiling);
}

void columns_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  dispatch_any_floating("normalize", dtype, [&](auto s) HWY_ATTR {
    columns_forward_of(problem, NormArrays<decltype(s)>(problem, arrays));
  });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

HWY_EXPORT(columns_forward);
void columns_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  NORMA_SIMD_BEST(columns_forward)(dtype, problem, arrays);
}

}  // namespace norma::kernels::cpu
#endif

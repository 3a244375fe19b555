#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/norm/cpu/columns.cpp"
#include "core/simd/foreach_target.h"

#include "ops/norm/cpu/columns.h"

#include <cmath>
#include <utility>

// Columns: sets lie side by side (batch norm and instance norm in channels_last, layer norm 2d in NCHW), or each set is
// a few neighbouring columns (group norm in channels_last, batch norm of small images in NCHW). A wide row of columns
// is the unit of work; every column has its own sums.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

namespace {

/// Elements of a set from which its pivot is taken: a column of so many rows, or several columns of fewer.
constexpr int64_t kPivotElements = 8;

/// The forward pass of one thread.
template <class S, class T = compute_t<S>>
class ColumnsForward {
 public:
  ColumnsForward(const NormProblem& problem, const ForwardArrays<S>& arrays, const ColumnTiling& tiling,
                 Scratch& scratch)
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
    const int64_t rows = std::min(std::max<int64_t>(2, kPivotElements / tile.neighbours), tile.rows);
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
  const ForwardArrays<S>& arrays_;
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
void forward_by_tiles(const NormProblem& problem, const ForwardArrays<S>& arrays, const ColumnTiling& tiling) {
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
void forward_by_chunks(const NormProblem& problem, const ForwardArrays<S>& arrays, const ColumnTiling& tiling) {
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

template <class S>
void columns_forward(const NormProblem& problem, const ForwardArrays<S>& arrays) {
  const ColumnTiling tiling(problem, 1, sizeof(S));
  tiling.tile_by_tile() ? forward_by_tiles(problem, arrays, tiling) : forward_by_chunks(problem, arrays, tiling);
}

// --- backward -------------------------------------------------------------------------------------------------------

namespace {

/// Rows whose dz stands in L1 between two loops.
constexpr int64_t kStagedRows = 4;

/// The backward pass of columns in one thread: the sums over rows of a tile, and then its dx.
template <class S, class T = compute_t<S>>
class ColumnsBackward {
 public:
  ColumnsBackward(const NormProblem& problem, const BackwardArrays<S>& arrays, const ColumnTiling& tiling,
                  Scratch& scratch)
      : problem_(problem),
        arrays_(arrays),
        of_dx_(problem),
        along_(along_of(problem.affine)),
        out_(streams(problem, sizeof(S))),
        dz_from_(dz_from(arrays, along_)) {
    for (T** row : {&mean_, &mean_low_, &rstd_, &scale_, &by_xhat_, &shift_, &weight_, &bias_, &part_sum_,
                    &part_sum_xhat_, &row_dz_, &row_dz_xhat_}) {
      *row = scratch.take<T>(tiling.width);
    }
    for (double** row : {&sum_, &sum_xhat_, &set_sum_, &set_sum_xhat_}) {
      *row = scratch.take<double>(tiling.width);
    }
    if (dz_from_ == DzFrom::stage) {
      dz_ = scratch.take<T>(kStagedRows * tiling.width);
    }
  }

  /// Loads the constants that the sums of a tile need.
  void begin_tile(const ColumnTile& tile) {
    weights_ =
        affine_offset(problem_.affine, tile.outer) + (along_ == Along::both ? tile.first_kept * tile.neighbours : 0);
    tile.spread(mean_, [&](int64_t set) { return arrays_.mean[tile.first_set + set]; });
    tile.spread(mean_low_, [&](int64_t set) { return arrays_.mean_low[tile.first_set + set]; });
    tile.spread(rstd_, [&](int64_t set) { return arrays_.rstd[tile.first_set + set]; });
    if (along_ == Along::columns && arrays_.weight != nullptr) {
      gather_columns(problem_.affine, tile, arrays_.weight, weight_);
    } else {
      std::fill_n(weight_, tile.width, T(1));
    }
    if (along_ == Along::columns && arrays_.bias != nullptr) {
      gather_columns(problem_.affine, tile, arrays_.bias, bias_);
    } else {
      std::fill_n(bias_, tile.width, T(0));
    }
    for (int64_t j = 0; j < tile.width; ++j) {
      scale_[j] = rstd_[j] * weight_[j];
    }
  }

  /// Adds up dz and dz * xhat over some rows for each column, at sum() and sum_xhat().
  void add_up(const ColumnTile& tile, int64_t begin, int64_t end) {
    clear_sums(tile);
    for_each_block(tile, begin, end, [&](int64_t row, auto rows, auto dz, int64_t dz_stride) {
      const int64_t at = tile.offset + row * tile.stride;
      add_rows<rows>(rows == 1 ? tile.width_of(row) : tile.width, dz, dz_stride, arrays_.dy + at, arrays_.x + at,
                     tile.stride, mean_, mean_low_, rstd_, part_sum_, part_sum_xhat_);
    });
    tile.fold(sum_);
    tile.fold(sum_xhat_);
  }

  /// Adds up the same with g = dz * weight over all rows, for weights that vary from row to row. Adds to their
  /// gradients, which begin at dweight and dbias unless those are null.
  void add_up_weighted(const ColumnTile& tile, double* dweight, double* dbias) {
    clear_sums(tile);
    const int64_t at = weights_;
    for_each_block<true>(tile, 0, tile.rows, [&](int64_t row, auto rows, auto given, int64_t dz_stride) {
      const auto* dz = given.dz;
      const S* x = arrays_.x + tile.offset + row * tile.stride;
      const S* dy = arrays_.dy + tile.offset + row * tile.stride;
      const int64_t width = rows == 1 ? tile.width_of(row) : tile.width;
      if (along_ == Along::rows) {
        add_weighted_rows<rows>(width, dz, dz_stride, dy, x, tile.stride,
                                arrays_.weight == nullptr ? nullptr : arrays_.weight + at + row, mean_, mean_low_,
                                rstd_, part_sum_, part_sum_xhat_, dweight == nullptr ? nullptr : dweight + at + row,
                                dbias == nullptr ? nullptr : dbias + at + row);
        return;
      }
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t first = at + tile.weights_of(row + i);
        add_both(width, dz + i * dz_stride, x + i * tile.stride,
                 arrays_.weight == nullptr ? nullptr : arrays_.weight + first,
                 dweight == nullptr ? nullptr : dweight + first, dbias == nullptr ? nullptr : dbias + first);
      }
    });
    tile.fold(sum_);
    tile.fold(sum_xhat_);
  }

  [[nodiscard]] double* sum() { return sum_; }
  [[nodiscard]] double* sum_xhat() { return sum_xhat_; }

  /// Computes the constants of dx from the columns' sums over all rows.
  void set_constants(const ColumnTile& tile, const double* sum, const double* sum_xhat) {
    const bool weighted = along_ == Along::columns && arrays_.weight != nullptr;
    tile.sum_sets(sum, weighted ? weight_ : nullptr, set_sum_);
    tile.sum_sets(sum_xhat, weighted ? weight_ : nullptr, set_sum_xhat_);
    const T* mean = arrays_.mean + tile.first_set;
    const T* rstd = arrays_.rstd + tile.first_set;
    tile.spread(by_xhat_, [&](int64_t set) {
      return static_cast<T>(of_dx_.by_xhat(mean[set], rstd[set], set_sum_[set], set_sum_xhat_[set]));
    });
    tile.spread(shift_, [&](int64_t set) { return static_cast<T>(of_dx_.shift(rstd[set], set_sum_[set])); });
  }

  /// Adds the columns' sums to the gradients of their weights, for Along::columns.
  void add_weight_gradients(const ColumnTile& tile, const double* sum, const double* sum_xhat, double* dweight,
                            double* dbias) const {
    const int64_t offset = affine_offset(problem_.affine, tile.outer);
    for_each_column_weight(problem_.affine, tile, [&](int64_t column, int64_t i) {
      dweight[offset + i] += sum_xhat[column];
      dbias[offset + i] += sum[column];
    });
  }

  /// Writes dx and dresidual of some rows.
  void write(const ColumnTile& tile, int64_t begin, int64_t end) {
    for_each_row_from_the_end(tile, begin, end, sizeof(S), [&](int64_t row) {
      const int64_t at = tile.offset + row * tile.stride;
      switch (dz_from_) {
        case DzFrom::dy: return write_row(tile, row, Given<S>{arrays_.dy + at});
        case DzFrom::bits: {
          const WhereBits<S> dz{arrays_.dy + at, arrays_.bits, at};
          if (arrays_.dresidual == nullptr) {
            return write_row(tile, row, dz);
          }
          if (arrays_.dx == nullptr) {
            return store_gradient_run(tile.width_of(row), dz, arrays_.dresidual + at);
          }
          return write_row(tile, row, AndStored{dz, arrays_.dresidual + at});
        }
        case DzFrom::relu: return write_row(tile, row, positive_part(at));
        case DzFrom::stage: break;
      }
      T* dz = dz_;
      if constexpr (std::is_same_v<S, T>) {
        dz = arrays_.dresidual == nullptr ? dz : arrays_.dresidual + at;
      }
      stage(tile, row, dz);
      if constexpr (!std::is_same_v<S, T>) {
        if (arrays_.dresidual != nullptr) {
          store_run(tile.width_of(row), dz, arrays_.dresidual + at);
        }
      }
      write_row(tile, row, Given<T>{dz});
    });
  }

 private:
  void clear_sums(const ColumnTile& tile) {
    std::fill_n(part_sum_, tile.width, T(0));
    std::fill_n(part_sum_xhat_, tile.width, T(0));
    std::fill_n(sum_, tile.width, 0.0);
    std::fill_n(sum_xhat_, tile.width, 0.0);
  }

  /// Where dz comes from: an operand, or a few rows of it in L1, which weights that vary from row to row have, too.
  enum class DzFrom { dy, bits, relu, stage };
  static DzFrom dz_from(const BackwardArrays<S>& arrays, Along along) {
    if (arrays.activation == Activation::identity) {
      return DzFrom::dy;
    }
    if (along == Along::rows || along == Along::both || computes_dz_apart(arrays)) {
      return DzFrom::stage;
    }
    return arrays.bits != nullptr ? DzFrom::bits : DzFrom::relu;
  }

  /// dz of the elements from `at` on behind relu.
  [[nodiscard]] auto positive_part(int64_t at) const {
    return WherePositive<S, Varying<T>, Varying<T>, Varying<T>, Varying<T>>{arrays_.dy + at, arrays_.x + at, {mean_},
                                                                            {mean_low_},     {scale_},       {bias_}};
  }

  /// Calls f(row, rows, dz, its stride) for blocks of four rows or one, and moves the sums to double in time.
  template <bool weighted = false, class F>
  void for_each_block(const ColumnTile& tile, int64_t begin, int64_t end, F&& f) {
    const auto block = [&](int64_t row, auto rows) {
      const int64_t at = tile.offset + row * tile.stride;
      if (dz_from_ == DzFrom::dy) {
        return f(row, rows, Given<S>{arrays_.dy + at}, tile.stride);
      }
      if constexpr (!weighted) {
        if (dz_from_ == DzFrom::bits) {
          return f(row, rows, WhereBits<S>{arrays_.dy + at, arrays_.bits, at}, tile.stride);
        }
        if (dz_from_ == DzFrom::relu) {
          return f(row, rows, positive_part(at), tile.stride);
        }
      }
      for (int64_t i = 0; i < rows; ++i) {
        stage(tile, row + i, dz_ + i * tile.width);
      }
      f(row, rows, Given<T>{dz_}, tile.width);
    };
    int64_t row = begin;
    while (row < end) {
      const int64_t stop = std::min(end, row + rows_in_t(tile));
      for (; row + kStagedRows <= std::min(stop, tile.rows - 1); row += kStagedRows) {
        block(row, std::integral_constant<int, kStagedRows>{});
      }
      for (; row < stop; ++row) {
        block(row, std::integral_constant<int, 1>{});
      }
      move_to_double(tile.width, part_sum_, sum_);
      move_to_double(tile.width, part_sum_xhat_, sum_xhat_);
    }
  }

  /// Adds one row of weights that also vary along it.
  template <class D>
  void add_both(int64_t width, const D* dz, const S* x, const T* weight, double* dweight, double* dbias) {
    const auto run = [&](auto w) {
      for_each_lanes<T>(width, [&](int64_t j, auto part) NORMA_INLINE {
        const Lanes<T> d = load(dz + j, part);
        const Lanes<T> d_xhat =
            d * (difference(x, j, part, Varying<T>{mean_}, Varying<T>{mean_low_}) * load(rstd_ + j, part));
        store(part_sum_ + j, multiply_add(d, w.get(j, part), load(part_sum_ + j, part)), part);
        store(part_sum_xhat_ + j, multiply_add(d_xhat, w.get(j, part), load(part_sum_xhat_ + j, part)), part);
        store(row_dz_xhat_ + j, d_xhat, part);
        store(row_dz_ + j, d, part);
      });
    };
    weight == nullptr ? run(Same<T>{1}) : run(Varying<T>{weight});
    for (int64_t j = 0; j < width && dweight != nullptr; ++j) {
      dweight[j] += row_dz_xhat_[j];
      dbias[j] += row_dz_[j];
    }
  }

  /// Computes dz of a row, where it is not dy.
  [[gnu::noinline]] void stage(const ColumnTile& tile, int64_t row, T* dz) const {
    const int64_t width = tile.width_of(row);
    const int64_t at = tile.offset + row * tile.stride;
    if (arrays_.bits != nullptr) {
      store_gradient_run(width, WhereBits<S>{arrays_.dy + at, arrays_.bits, at}, dz);
      return;
    }
    const auto apply = [&](auto weight, auto bias) {
      slope_run(arrays_.activation, width, arrays_.x + at,
                arrays_.residual == nullptr ? nullptr : arrays_.residual + at, arrays_.dy + at, dz, Varying<T>{mean_},
                Varying<T>{mean_low_}, Times{Varying<T>{rstd_}, weight}, bias);
    };
    switch (along_) {
      case Along::none: return apply(Same<T>{1}, Same<T>{0});
      case Along::columns: return apply(Varying<T>{weight_}, Varying<T>{bias_});
      case Along::rows:
        return apply(Same<T>{arrays_.weight == nullptr ? T(1) : arrays_.weight[weights_ + row]},
                     Same<T>{arrays_.bias == nullptr ? T(0) : arrays_.bias[weights_ + row]});
      case Along::both: {
        const int64_t at_weight = weights_ + tile.weights_of(row);
        return apply(Varying<T>{arrays_.weight == nullptr ? weight_ : arrays_.weight + at_weight},
                     Varying<T>{arrays_.bias == nullptr ? bias_ : arrays_.bias + at_weight});
      }
    }
  }

  template <class Dz>
  void write_row(const ColumnTile& tile, int64_t row, Dz dz) const {
    if (arrays_.dx == nullptr) {
      return;
    }
    const int64_t at = tile.offset + row * tile.stride;
    const auto run = [&](auto by_dz) {
      input_gradient_run(problem_.fixed_stats, tile.width_of(row), dz, arrays_.x + at, arrays_.dx + at,
                         Varying<T>{mean_}, Varying<T>{mean_low_}, Varying<T>{rstd_}, by_dz, Varying<T>{by_xhat_},
                         Varying<T>{shift_}, out_);
    };
    const Varying<T> by_dz{scale_};
    if (along_ == Along::rows && arrays_.weight != nullptr) {
      run(Times{by_dz, Same<T>{arrays_.weight[weights_ + row]}});
    } else if (along_ == Along::both && arrays_.weight != nullptr) {
      run(Times{by_dz, Varying<T>{arrays_.weight + weights_ + tile.weights_of(row)}});
    } else {
      run(by_dz);
    }
  }

  const NormProblem& problem_;
  const BackwardArrays<S>& arrays_;
  InputGradients of_dx_;
  Along along_;
  StreamingStore out_;
  DzFrom dz_from_;
  int64_t weights_ = 0;  ///< the tile's first weight, for weights that vary from row to row
  T* mean_;
  T* mean_low_;
  T* rstd_;
  T* scale_;  ///< rstd * weight
  T* by_xhat_;
  T* shift_;
  T* weight_;    ///< of each column for Along::columns; else, and where there is none, 1
  T* bias_;      ///< of each column for Along::columns; else, and where there is none, 0
  T* part_sum_;  ///< sums of a few rows, which move to sum_ and sum_xhat_ in time
  T* part_sum_xhat_;
  T* row_dz_;  ///< of one row, whose weights are its own
  T* row_dz_xhat_;
  double* sum_;
  double* sum_xhat_;
  double* set_sum_;
  double* set_sum_xhat_;
  T* dz_ = nullptr;
};

bool varies_from_row_to_row(const AffineShape& affine) {
  const Along along = along_of(affine);
  return along == Along::rows || along == Along::both;
}

/// The part of the weight gradients that a tile adds to. Tiles whose weights are theirs alone share a part; a part
/// serves several outer indices.
struct WeightParts {
  WeightParts(const NormProblem& problem, const ColumnTiling& tiling)
      : own_weights(problem.affine.kept > 1),
        tiles(tiling.tiles),
        outer_per_part(ceil_div(problem.shape.outer, problem.affine.numel() > 4096 ? kMaxPartials / 8 : kMaxPartials)),
        outer_parts(ceil_div(problem.shape.outer, outer_per_part)),
        parts(own_weights ? outer_parts : outer_parts * tiles) {}

  [[nodiscard]] int64_t of(const ColumnTile& tile) const {
    const int64_t outer_part = tile.outer / outer_per_part;
    return own_weights ? outer_part : outer_part * tiles + tile.number;
  }

  bool own_weights;
  int64_t tiles;
  int64_t outer_per_part;
  int64_t outer_parts;
  int64_t parts;
};

/// Takes one tile after the other.
template <class S>
void backward_by_tiles(const NormProblem& problem, const BackwardArrays<S>& arrays, const ColumnTiling& tiling) {
  const NormShape& shape = problem.shape;
  const AffineShape& affine = problem.affine;
  const bool weights_wanted = arrays.dweight != nullptr || arrays.dbias != nullptr;
  const bool weighted_rows = varies_from_row_to_row(affine);

  const WeightParts split(problem, tiling);
  const int64_t tasks = split.outer_parts * tiling.tiles;
  Scratch shared;
  const WeightGradients gradients(shared, weights_wanted, split.parts, affine.numel());

  const int64_t task_elements = std::max<int64_t>(1, shape.numel() / tasks);
  parallel_for(0, tasks, ceil_div(kPointwiseGrain, task_elements), [&](int64_t begin, int64_t end) {
    Scratch scratch;
    ColumnsBackward<S> columns(problem, arrays, tiling, scratch);
    double* sum = scratch.take<double>(tiling.width);
    double* sum_xhat = scratch.take<double>(tiling.width);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t outer_part = task / tiling.tiles;
      const int64_t last_outer = std::min((outer_part + 1) * split.outer_per_part, shape.outer);
      for (int64_t outer = outer_part * split.outer_per_part; outer < last_outer; ++outer) {
        const ColumnTile tile = tiling.tile(outer, task % tiling.tiles);
        double* dweight = gradients.dweight(split.of(tile));
        double* dbias = gradients.dbias(split.of(tile));
        columns.begin_tile(tile);
        if (weighted_rows) {
          columns.add_up_weighted(tile, dweight, dbias);
          std::copy_n(columns.sum(), tile.columns, sum);
          std::copy_n(columns.sum_xhat(), tile.columns, sum_xhat);
        } else {
          std::fill_n(sum, tile.columns, 0.0);
          std::fill_n(sum_xhat, tile.columns, 0.0);
          for (int64_t chunk = 0; chunk < tiling.chunks && (weights_wanted || !problem.fixed_stats); ++chunk) {
            columns.add_up(tile, tiling.first_row(chunk), tiling.last_row(chunk, tile));
            for (int64_t j = 0; j < tile.columns; ++j) {
              sum[j] += columns.sum()[j];
              sum_xhat[j] += columns.sum_xhat()[j];
            }
          }
          if (dweight != nullptr) {
            columns.add_weight_gradients(tile, sum, sum_xhat, dweight, dbias);
          }
        }
        if (arrays.dx != nullptr || arrays.dresidual != nullptr) {
          columns.set_constants(tile, sum, sum_xhat);
          columns.write(tile, 0, tile.rows);
        }
      }
    }
  });
  gradients.total(arrays.dweight, arrays.dbias);
}

/// Takes all tiles at once, chunk by chunk.
template <class S>
void backward_by_chunks(const NormProblem& problem, const BackwardArrays<S>& arrays, const ColumnTiling& tiling) {
  const NormShape& shape = problem.shape;
  const bool weights_wanted = arrays.dweight != nullptr || arrays.dbias != nullptr;
  const int64_t all_columns = shape.outer * shape.kept * shape.reduce_inner;
  const int64_t pieces = tiling.pieces();
  const int64_t grain = ceil_div(kPointwiseGrain, std::max<int64_t>(1, shape.numel() / pieces));

  // Each chunk has a row with the sums of dz of all columns, and one with those of dz * xhat.
  Scratch shared;
  double* totals = shared.zeros<double>(2 * all_columns);
  if (weights_wanted || !problem.fixed_stats) {
    double* chunks = shared.take<double>(2 * tiling.chunks * all_columns);
    parallel_for(0, pieces, grain, [&](int64_t begin, int64_t end) {
      Scratch scratch;
      ColumnsBackward<S> columns(problem, arrays, tiling, scratch);
      ColumnTile before;
      for (int64_t i = begin; i < end; ++i) {
        const auto [tile, chunk, first, last] = tiling.piece(i);
        if (!tile.is(std::exchange(before, tile))) {
          columns.begin_tile(tile);
        }
        columns.add_up(tile, first, last);
        double* to = chunks + 2 * chunk * all_columns + tile.first_set * shape.reduce_inner;
        std::copy_n(columns.sum(), tile.columns, to);
        std::copy_n(columns.sum_xhat(), tile.columns, to + all_columns);
      }
    });
    add_chunks(tiling.chunks, 2 * all_columns, chunks, totals);
  }
  const double* sum = totals;
  const double* sum_xhat = totals + all_columns;

  if (weights_wanted) {
    const WeightParts split(problem, tiling);
    const WeightGradients gradients(shared, true, split.parts, problem.affine.numel());
    const ColumnsBackward<S> columns(problem, arrays, tiling, shared);
    for (int64_t task = 0; task < tiling.tasks(); ++task) {
      const ColumnTile tile = tiling.tile(task);
      const int64_t first = tile.first_set * shape.reduce_inner;
      columns.add_weight_gradients(tile, sum + first, sum_xhat + first, gradients.dweight(split.of(tile)),
                                   gradients.dbias(split.of(tile)));
    }
    gradients.total(arrays.dweight, arrays.dbias);
  }
  if (arrays.dx == nullptr && arrays.dresidual == nullptr) {
    return;
  }
  parallel_for(0, pieces, grain, [&](int64_t begin, int64_t end) {
    Scratch scratch;
    ColumnsBackward<S> columns(problem, arrays, tiling, scratch);
    ColumnTile before;
    for (int64_t i = end - 1; i >= begin; --i) {
      const ColumnTiling::Piece piece = tiling.piece(i);
      const ColumnTile& tile = piece.tile;
      if (!tile.is(std::exchange(before, tile))) {
        const int64_t first_column = tile.first_set * shape.reduce_inner;
        columns.begin_tile(tile);
        columns.set_constants(tile, sum + first_column, sum_xhat + first_column);
      }
      columns.write(tile, piece.begin, piece.end);
    }
  });
}

}  // namespace

template <class S>
void columns_backward(const NormProblem& problem, const BackwardArrays<S>& arrays) {
  const ColumnTiling tiling(problem, 2, sizeof(S));
  varies_from_row_to_row(problem.affine) || tiling.tile_by_tile() ? backward_by_tiles(problem, arrays, tiling)
                                                                  : backward_by_chunks(problem, arrays, tiling);
}

WalkKernels columns_walk() {
  return walk_of([](const auto& problem, const auto& arrays) HWY_ATTR { columns_forward(problem, arrays); },
                 [](const auto& problem, const auto& arrays) HWY_ATTR { columns_backward(problem, arrays); });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

HWY_EXPORT(columns_walk);
WalkKernels columns_walk() {
  return NORMA_SIMD_BEST(columns_walk)();
}

}  // namespace norma::kernels::cpu
#endif

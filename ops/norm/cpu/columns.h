// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_OPS_NORM_CPU_COLUMNS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_OPS_NORM_CPU_COLUMNS_H
#undef NORMA_OPS_NORM_CPU_COLUMNS_H
#else
#define NORMA_OPS_NORM_CPU_COLUMNS_H
#endif

#include "core/cpu/scratch.h"
#include "ops/norm/cpu/loops.h"

#include <cstdint>
#include <numeric>
#include <type_traits>

// Forward and backward of the columns share the way memory is cut, and rows of numbers, one per column.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

/// Some neighbouring sets of one outer index, with all their elements: rows of a matrix whose columns belong to the
/// sets. Where the rows are narrow and adjacent in memory, several make one wide row (`copies`), so that the inner
/// loops are never short.
struct ColumnTile {
  int64_t outer = 0;
  int64_t number = 0;      ///< among the tiles of this outer index
  int64_t offset = 0;      ///< of the first element
  int64_t first_set = 0;   ///< number of the first set
  int64_t first_kept = 0;  ///< its place along `kept`
  int64_t sets = 0;
  int64_t neighbours = 1;  ///< columns of one set that lie side by side
  int64_t columns = 0;     ///< sets * neighbours
  int64_t copies = 1;
  int64_t rows = 0;         ///< wide rows
  int64_t width = 0;        ///< columns * copies
  int64_t last_width = 0;   ///< of the last row, which may have fewer copies
  int64_t stride = 0;       ///< from row to row
  int64_t weight_rows = 1;  ///< for Along::both: wide rows after which the weights are the same again

  /// The offset of a row's weights from those of the tile's first element, for Along::both.
  [[nodiscard]] int64_t weights_of(int64_t row) const { return row % weight_rows * stride; }
  [[nodiscard]] int64_t width_of(int64_t row) const { return row + 1 < rows ? width : last_width; }
  /// Elements of one set in the rows before `end`.
  [[nodiscard]] int64_t set_elements(int64_t end) const {
    return (end * copies - (end == rows ? (width - last_width) / columns : 0)) * neighbours;
  }

  /// True iff `other` is the same tile of the same problem.
  [[nodiscard]] bool is(const ColumnTile& other) const {
    return rows == other.rows && outer == other.outer && number == other.number;
  }

  /// to[column] = f(set) for every column of a wide row.
  template <class T, class F>
  void spread(T* to, F&& f) const {
    if (neighbours == 1) {
      for (int64_t set = 0; set < sets; ++set) {
        to[set] = f(set);
      }
    } else {
      for (int64_t set = 0; set < sets; ++set) {
        std::fill_n(to + set * neighbours, neighbours, f(set));
      }
    }
    repeat(to);
  }
  /// Repeats the first `columns` entries `copies` times.
  template <class T>
  void repeat(T* row) const {
    for (int64_t i = columns; i < width; ++i) {
      row[i] = row[i - columns];
    }
  }
  /// Adds the copies of a wide row up into its first `columns` entries.
  template <class T>
  void fold(T* row) const {
    for (int64_t copy = 1; copy < copies; ++copy) {
      for (int64_t i = 0; i < columns; ++i) {
        row[i] += row[copy * columns + i];
      }
    }
  }
  /// to[set] = sum of weight[column] * row[column] over the columns of a set; weight: null for 1.
  template <class T>
  void sum_sets(const double* row, const T* weight, double* to) const {
    if (neighbours == 1 && weight == nullptr) {
      if (row != to) {
        std::copy_n(row, sets, to);
      }
      return;
    }
    const auto sums = [&](auto term) {
      constexpr int64_t kParts = 8;  // sums side by side: one alone waits for each of its additions
      for (int64_t set = 0; set < sets; ++set) {
        const int64_t first = set * neighbours;
        const int64_t end = first + neighbours;
        int64_t column = first + neighbours / kParts * kParts;
        double total = 0;
        if (column > first) {
          double parts[kParts] = {};
          for (int64_t at = first; at < column; at += kParts) {
            for (int64_t part = 0; part < kParts; ++part) {
              parts[part] += term(at + part);
            }
          }
          total = std::accumulate(parts, parts + kParts, 0.0);
        }
        for (; column < end; ++column) {
          total += term(column);
        }
        to[set] = total;
      }
    };
    if (weight == nullptr) {
      sums([&](int64_t column) { return row[column]; });
    } else {
      sums([&](int64_t column) { return static_cast<double>(weight[column]) * row[column]; });
    }
  }
};

/// The axes of a tile along which weight and bias vary.
enum class Along { none, columns, rows, both };
inline Along along_of(const AffineShape& affine) {
  if (!affine.present) {
    return Along::none;
  }
  const bool across = affine.kept > 1 || affine.inner > 1;
  if (affine.reduce_outer > 1) {
    return across ? Along::both : Along::rows;
  }
  return Along::columns;
}

/// The cut of a problem into tiles, and of each tile into chunks of rows. It depends on the problem alone. A chunk has
/// its own sums, which are added up in order.
struct ColumnTiling {
  /// `arrays`: the number of arrays of x's size that are read twice.
  ColumnTiling(const NormProblem& problem, int64_t arrays, int64_t element_bytes);

  [[nodiscard]] ColumnTile tile(int64_t outer, int64_t number) const;
  [[nodiscard]] ColumnTile tile(int64_t task) const { return tile(task / tiles, task % tiles); }
  [[nodiscard]] int64_t tasks() const { return shape.outer * tiles; }
  [[nodiscard]] int64_t first_row(int64_t chunk) const { return chunk * rows_per_chunk; }
  [[nodiscard]] int64_t last_row(int64_t chunk, const ColumnTile& tile) const {
    return std::min((chunk + 1) * rows_per_chunk, tile.rows);
  }
  /// The rows [begin, end) of a tile that make a chunk.
  struct Piece {
    ColumnTile tile;
    int64_t chunk;
    int64_t begin;
    int64_t end;
  };
  [[nodiscard]] int64_t pieces() const { return tasks() * chunks; }
  /// Piece number i. Those of one chunk are neighbours in memory, so they follow each other.
  [[nodiscard]] Piece piece(int64_t i) const {
    const int64_t chunk = i / tiles % chunks;
    const ColumnTile of = tile(i / (tiles * chunks), i % tiles);
    return {of, chunk, first_row(chunk), last_row(chunk, of)};
  }
  /// True iff a thread takes one tile after the other; false iff all threads share the chunks of all tiles.
  [[nodiscard]] bool tile_by_tile() const;

  NormShape shape;
  Along along;
  int64_t weight_period;  ///< of the rows of memory, for Along::both
  int64_t sets_per_tile;
  int64_t tiles;  ///< of one outer index
  int64_t rows_per_chunk;
  int64_t chunks;  ///< of one tile
  int64_t width;   ///< of the widest tile
};

/// The fewest columns of a wide row.
inline constexpr int64_t kMinWidth = 128;
/// The most columns of a row before it is cut, so that rows of sums stay in L1, and the most of a cut tile.
inline constexpr int64_t kMaxWidth = 2048;
inline constexpr int64_t kMaxColumns = 1024;
inline constexpr int64_t kMinColumns = 64;
/// Rows of a chunk, which has sums and constants of its own. It has fewer if there were less than kFewChunks otherwise.
inline constexpr int64_t kChunkRows = 64;
inline constexpr int64_t kFewChunks = 32;

inline ColumnTiling::ColumnTiling(const NormProblem& problem, int64_t arrays, int64_t element_bytes)
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

inline bool ColumnTiling::tile_by_tile() const {
  const int64_t threads = in_parallel() ? 1 : num_threads();
  return chunks == 1 || tasks() % threads == 0 || tasks() >= 4 * threads;
}

inline ColumnTile ColumnTiling::tile(int64_t outer, int64_t number) const {
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

/// Calls f(row) for the rows of [begin, end), the last block first, as the end of a tile was in the cache last.
template <class F>
void for_each_row_from_the_end(const ColumnTile& tile, int64_t begin, int64_t end, int64_t element_bytes, F&& f) {
  const int64_t block = std::max<int64_t>(1, kBackwardsBytes / (tile.width * element_bytes));
  for_each_block_from_the_end(begin, end, block, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      f(row);
    }
  });
}

/// The offset at which weight and bias of one outer index begin.
inline int64_t affine_offset(const AffineShape& affine, int64_t outer) {
  return affine.present ? (outer % affine.outer_period) * affine.per_outer() : 0;
}

/// Calls f(column, index) with the index, from affine_offset on, of each column's weight, for Along::columns.
template <class F>
void for_each_column_weight(const AffineShape& affine, const ColumnTile& tile, F&& f) {
  if (tile.neighbours == 1 && affine.kept > 1) {
    for (int64_t set = 0; set < tile.sets; ++set) {
      f(set, tile.first_kept + set);
    }
    return;
  }
  int64_t column = 0;
  for (int64_t set = 0; set < tile.sets; ++set) {
    const int64_t of_set = affine.kept > 1 ? (tile.first_kept + set) * affine.inner : 0;
    for (int64_t i = 0; i < tile.neighbours; ++i) {
      f(column++, of_set + (affine.inner > 1 ? i : 0));
    }
  }
}

/// Fills a row with the weight of each column, for Along::columns.
template <class T>
void gather_columns(const AffineShape& affine, const ColumnTile& tile, const T* weight, T* to) {
  const T* base = weight + affine_offset(affine, tile.outer);
  for_each_column_weight(affine, tile, [&](int64_t column, int64_t i) { to[column] = base[i]; });
  tile.repeat(to);
}

/// The number of rows that are added up in T before they are moved to double. It is small where there are few rows, as
/// their errors do not average out.
inline int64_t rows_in_t(const ColumnTile& tile) {
  return tile.rows <= 32 ? 4 : 64;
}

/// total[i] += the sum of chunks[chunk * count + i], chunk by chunk.
inline void add_chunks(int64_t chunks, int64_t count, const double* of_chunks, double* total) {
  parallel_for(0, count, ceil_div(kPointwiseGrain, chunks), [&](int64_t begin, int64_t end) {
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      for (int64_t i = begin; i < end; ++i) {
        total[i] += of_chunks[chunk * count + i];
      }
    }
  });
}

/// sum[j] += part[j], and part[j] = 0.
template <class T>
void move_to_double(int64_t width, T* part, double* sum) {
  for (int64_t j = 0; j < width; ++j) {
    sum[j] += part[j];
    part[j] = 0;
  }
}

// --- sums over a few rows -------------------------------------------------------------------------------------------

// Sums over a few rows at a time, column by column: the sums are loaded and stored once for all of them. The next rows
// are prefetched meanwhile, since the hardware does not foresee them where a tile is a part of each row.

/// first[j] += sum of d, second[j] += sum of d² over `rows` rows, with d = x - pivot[j].
template <int rows, class S, class T>
HWY_INLINE void add_shifted_rows(int64_t width, const S* x, int64_t stride, const T* pivot, T* first, T* second) {
  for_each_lanes<T>(width, [&](int64_t j, auto part) NORMA_INLINE {
    const Lanes<T> p = load(pivot + j, part);
    Lanes<T> sum = {};
    Lanes<T> squares = {};
#pragma GCC unroll 4
    for (int row = 0; row < rows; ++row) {
      __builtin_prefetch(x + (row + rows) * stride + j);
      const Lanes<T> d = load(x + row * stride + j, part) - p;
      sum += d;
      squares = multiply_add(d, d, squares);
    }
    store(first + j, load(first + j, part) + sum, part);
    store(second + j, load(second + j, part) + squares, part);
  });
}

/// first[j] += sum of dz, second[j] += sum of dz * xhat over `rows` rows. dy: the array from which dz is made, or dz.
template <int rows, class Dz, class S, class T>
HWY_INLINE void add_rows(int64_t width, Dz dz, int64_t dz_stride, const S* dy, const S* x, int64_t stride,
                         const T* mean, const T* mean_low, const T* rstd, T* first, T* second) {
  for_each_lanes<T>(width, [&](int64_t j, auto part) NORMA_INLINE {
    const Lanes<T> s = load(rstd + j, part);
    Lanes<T> sum = {};
    Lanes<T> sum_xhat = {};
#pragma GCC unroll 4
    for (int row = 0; row < rows; ++row) {
      __builtin_prefetch(x + (row + rows) * stride + j);
      __builtin_prefetch(dy + (row + rows) * stride + j);
      const Lanes<T> d = dz.ahead(row * dz_stride).get(j, part);
      sum += d;
      const Lanes<T> xhat = difference(x + row * stride, j, part, Varying<T>{mean}, Varying<T>{mean_low}) * s;
      sum_xhat = multiply_add(d, xhat, sum_xhat);
    }
    store(first + j, load(first + j, part) + sum, part);
    store(second + j, load(second + j, part) + sum_xhat, part);
  });
}

/// As above with g = dz * weight in place of dz, one weight for each row, and the gradients of these weights:
/// dweight[row] += sum of dz * xhat, dbias[row] += sum of dz. weight and both gradients may be null. It prefetches the
/// row that lies `ahead` rows further on.
template <int rows, int ahead, class D, class S, class T>
HWY_INLINE void add_weighted_rows_at_once(int64_t width, const D* dz, int64_t dz_stride, const S* dy, const S* x,
                                          int64_t stride, const T* weight, const T* mean, const T* mean_low,
                                          const T* rstd, T* first, T* second, double* dweight, double* dbias) {
  Lanes<T> dw[rows] = {};
  Lanes<T> db[rows] = {};
  T w[rows];
  for (int row = 0; row < rows; ++row) {
    w[row] = weight == nullptr ? T(1) : weight[row];
  }
  for_each_lanes<T>(width, [&](int64_t j, auto part) NORMA_INLINE {
    const Lanes<T> s = load(rstd + j, part);
    Lanes<T> sum = load(first + j, part);
    Lanes<T> sum_xhat = load(second + j, part);
#pragma GCC unroll 4
    for (int row = 0; row < rows; ++row) {
      __builtin_prefetch(x + (row + ahead) * stride + j);
      __builtin_prefetch(dy + (row + ahead) * stride + j);
      const Lanes<T> d = load(dz + row * dz_stride + j, part);
      const Lanes<T> d_xhat =
          keep(d * (difference(x + row * stride, j, part, Varying<T>{mean}, Varying<T>{mean_low}) * s), part);
      db[row] += d;
      dw[row] += d_xhat;
      sum = multiply_add(d, broadcast(w[row]), sum);
      sum_xhat = multiply_add(d_xhat, broadcast(w[row]), sum_xhat);
    }
    store(first + j, sum, part);
    store(second + j, sum_xhat, part);
  });
  for (int row = 0; row < rows && dweight != nullptr; ++row) {
    const TwoSums sums = add_lanes(dw[row], db[row]);
    dweight[row] += sums.first;
    dbias[row] += sums.second;
  }
}
template <int rows, class D, class S, class T>
HWY_INLINE void add_weighted_rows(int64_t width, const D* dz, int64_t dz_stride, const S* dy, const S* x,
                                  int64_t stride, const T* weight, const T* mean, const T* mean_low, const T* rstd,
                                  T* first, T* second, double* dweight, double* dbias) {
  const auto some = [&](auto at_once, int row) HWY_ATTR {
    add_weighted_rows_at_once<at_once, rows>(
        width, dz + row * dz_stride, dz_stride, dy + row * stride, x + row * stride, stride,
        weight == nullptr ? nullptr : weight + row, mean, mean_low, rstd, first, second,
        dweight == nullptr ? nullptr : dweight + row, dbias == nullptr ? nullptr : dbias + row);
  };
  // The sums of four rows fill the 16 registers of AVX2, so the rest goes through the stack. Short rows would lose more
  // by beginning twice.
  if constexpr (rows == 4 && kRegisterLanes<T> < kLanes<T>) {
    if (width >= 8 * kLanes<T>) {
      some(std::integral_constant<int, 2>{}, 0);
      some(std::integral_constant<int, 2>{}, 2);
      return;
    }
  }
  some(std::integral_constant<int, rows>{}, 0);
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

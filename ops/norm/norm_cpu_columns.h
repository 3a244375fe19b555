#pragma once

#include "ops/norm/norm_cpu.h"

#include <span>

namespace norma::norm_kernels::cpu {

/// Some neighbouring sets of one outer index, with all their elements: rows of a matrix whose columns belong to the
/// sets. Where the rows are narrow and adjacent in memory, several make one wide row (`copies`), so that the inner
/// loops are never short.
struct ColumnTile {
  int64_t offset = 0;      ///< of the first element
  int64_t first_set = 0;   ///< number of the first set
  int64_t first_kept = 0;  ///< its place along `kept`
  int64_t sets = 0;
  int64_t neighbours = 1;  ///< columns of one set that lie side by side
  int64_t columns = 0;     ///< sets * neighbours
  int64_t copies = 1;
  int64_t rows = 0;        ///< wide rows
  int64_t width = 0;       ///< columns * copies
  int64_t last_width = 0;  ///< of the last row, which may have fewer copies
  int64_t stride = 0;      ///< from row to row

  [[nodiscard]] int64_t width_of(int64_t row) const { return row + 1 < rows ? width : last_width; }
  /// Elements of one set in some rows.
  [[nodiscard]] double set_elements(int64_t begin, int64_t end) const {
    const int64_t narrow = (end - begin) * copies - (end == rows ? (width - last_width) / columns : 0);
    return static_cast<double>(narrow * neighbours);
  }

  /// to[column] = f(set) for every column of a wide row.
  template <class T, class F>
  void spread(std::span<T> to, F&& f) const {
    for (int64_t set = 0, column = 0; set < sets; ++set) {
      const T value = f(set);
      for (int64_t i = 0; i < neighbours; ++i) {
        to[static_cast<size_t>(column++)] = value;
      }
    }
    repeat(to);
  }
  /// Repeats the first `columns` entries `copies` times.
  template <class T>
  void repeat(std::span<T> row) const {
    for (int64_t i = columns; i < width; ++i) {
      row[static_cast<size_t>(i)] = row[static_cast<size_t>(i - columns)];
    }
  }
  /// Adds the copies of a wide row up into its first `columns` entries.
  template <class T>
  void fold(std::span<T> row) const {
    for (int64_t i = columns; i < width; ++i) {
      row[static_cast<size_t>(i % columns)] += row[static_cast<size_t>(i)];
    }
  }
};

/// How weight and bias vary inside a tile.
enum class Along { none, columns, rows, both };
Along along_of(const AffineShape& affine);

/// How a problem is cut into tiles and each tile into blocks of rows. Depends on the problem alone.
struct ColumnTiling {
  /// `arrays`: how many arrays of x's size are read.
  ColumnTiling(const NormProblem& problem, int64_t arrays, int64_t element_bytes);

  [[nodiscard]] ColumnTile tile(int64_t outer, int64_t number) const;

  NormShape shape;
  bool widen;  ///< whether narrow rows may be joined
  int64_t sets_per_tile;
  int64_t tiles;  ///< of one outer index
  int64_t rows_per_block;
  int64_t blocks;  ///< of one tile
  bool in_cache;   ///< a tile stays in the cache between two passes
};

/// Rows of numbers, one per column.
template <class T>
class ColumnScratch {
 public:
  ColumnScratch(int64_t rows, int64_t width)
      : numbers_(static_cast<size_t>(rows * width)), width_(static_cast<size_t>(width)) {}
  std::span<T> row(size_t i) { return std::span(numbers_).subspan(i * width_, width_); }

 private:
  std::vector<T> numbers_;
  size_t width_;
};

/// Where weight and bias of one outer index begin.
inline int64_t affine_offset(const AffineShape& affine, int64_t outer) {
  return affine.present ? (outer % affine.outer_period) * affine.per_outer() : 0;
}

/// Calls f(column, index) with the index, from affine_offset on, of each column's weight, for Along::columns.
template <class F>
void for_each_column_weight(const AffineShape& affine, const ColumnTile& tile, F&& f) {
  int64_t column = 0;
  for (int64_t set = 0; set < tile.sets; ++set) {
    const int64_t of_set = affine.kept > 1 ? (tile.first_kept + set) * affine.inner : 0;
    for (int64_t i = 0; i < tile.neighbours; ++i) {
      f(column++, of_set + (affine.inner > 1 ? i : 0));
    }
  }
}

/// A row with the weight of each column, for Along::columns.
template <class T>
void gather_columns(const AffineShape& affine, const ColumnTile& tile, int64_t outer, const T* weight,
                    std::span<T> to) {
  const T* base = weight + affine_offset(affine, outer);
  for_each_column_weight(affine, tile, [&](int64_t column, int64_t i) { to[static_cast<size_t>(column)] = base[i]; });
  tile.repeat(to);
}

}  // namespace norma::norm_kernels::cpu

#include "ops/norm/norm_cpu_columns.h"

// Columns: sets lie side by side (batch norm and instance norm in channels_last, layer norm 2d in NCHW), and with them
// sets of a few neighbouring columns each (group norm in channels_last, batch norm of small images in NCHW). A wide row
// of columns is the unit of work; every column has its own sums.

namespace norma::norm_kernels::cpu {

namespace {

/// Columns a wide row should have: enough for the vector units, few enough that a row of sums stays in L1.
constexpr int64_t kMinWidth = 64;
constexpr int64_t kMaxColumns = 1024;
/// Columns of a tile that does not span all of `kept`: 512 bytes and more of neighbouring memory at a time.
constexpr int64_t kMinColumns = 128;

/// Rows that a pivot is taken from.
constexpr int64_t kPivotRows = 8;
/// Rows of a block, at most: each block has a pivot near its own mean.
constexpr int64_t kMaxBlockRows = 256;

/// Moments of the sets of a tile.
struct TileMoments {
  explicit TileMoments(int64_t sets)
      : pivot(static_cast<size_t>(sets)), rest(static_cast<size_t>(sets)), m2(static_cast<size_t>(sets)) {}
  std::vector<double> pivot;
  std::vector<double> rest;
  std::vector<double> m2;

  [[nodiscard]] Moments get(size_t i) const { return {pivot[i], rest[i], m2[i]}; }
  void set(size_t i, const Moments& m) {
    pivot[i] = m.pivot;
    rest[i] = m.rest;
    m2[i] = m.m2;
  }
};

/// What forward holds per column of a tile.
template <class T>
struct ForwardRows {
  explicit ForwardRows(int64_t width) : scratch(5, width), sums(2, width) {}
  ColumnScratch<T> scratch;
  ColumnScratch<double> sums;
};

/// first[j] = sum of d, second[j] = sum of d² over some rows, with d = x - pivot[j].
template <class T>
void column_sums(const ColumnTile& tile, const T* x, int64_t begin, int64_t end, const T* pivot, double* first,
                 double* second) {
  std::fill_n(first, tile.width, 0.0);
  std::fill_n(second, tile.width, 0.0);
  int64_t row = begin;
  // Four rows at a time, so that the sums, which are carried in double, are loaded and stored once for four.
  for (; row + 4 <= std::min(end, tile.rows - 1); row += 4) {
    const T* x0 = x + row * tile.stride;
    const T* x1 = x0 + tile.stride;
    const T* x2 = x1 + tile.stride;
    const T* x3 = x2 + tile.stride;
#pragma omp simd
    for (int64_t j = 0; j < tile.width; ++j) {
      const T d0 = x0[j] - pivot[j];
      const T d1 = x1[j] - pivot[j];
      const T d2 = x2[j] - pivot[j];
      const T d3 = x3[j] - pivot[j];
      first[j] += (d0 + d1) + (d2 + d3);
      second[j] += (d0 * d0 + d1 * d1) + (d2 * d2 + d3 * d3);
    }
  }
  for (; row < end; ++row) {
    const T* x0 = x + row * tile.stride;
    const int64_t width = tile.width_of(row);
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) {
      const T d = x0[j] - pivot[j];
      first[j] += d;
      second[j] += d * d;
    }
  }
}

/// The moments of the tile's sets over a block of rows.
template <class T>
void block_moments(bool raw, const ColumnTile& tile, const T* x, int64_t begin, int64_t end, ForwardRows<T>& rows,
                   TileMoments& moments) {
  const std::span<T> pivot = rows.scratch.row(0);
  const std::span<double> first = rows.sums.row(0);
  const std::span<double> second = rows.sums.row(1);
  const T* block = x + begin * tile.stride;
  tile.spread(pivot, [&](int64_t set) { return raw ? T(0) : block[set * tile.neighbours]; });

  const auto reduce = [&](int64_t last) {
    const double count = tile.set_elements(begin, last);
    column_sums(tile, x, begin, last, pivot.data(), first.data(), second.data());
    tile.fold(first);
    tile.fold(second);
    bool far = false;
    if (tile.neighbours == 1) {
      for (size_t set = 0; set < static_cast<size_t>(tile.sets); ++set) {
        const Moments m = moments_of(raw, count, pivot[set], first[set], second[set]);
        moments.set(set, m);
        far |= is_far(count, m);
      }
    } else {
      for (size_t set = 0, column = 0; set < static_cast<size_t>(tile.sets); ++set) {
        const T of_set = pivot[column];
        double sum = 0;
        double square_sum = 0;
        for (int64_t i = 0; i < tile.neighbours; ++i, ++column) {
          sum += first[column];
          square_sum += second[column];
        }
        const Moments m = moments_of(raw, count, of_set, sum, square_sum);
        moments.set(set, m);
        far |= is_far(count, m);
      }
    }
    return far && !raw;
  };
  // A look at a few rows finds a pivot near the mean. It is a bad one if they are outliers: then the mean it led to is
  // taken. Only pivots that are far move, as a set's bits must not depend on its neighbours.
  if (!raw) {
    reduce(std::min(begin + kPivotRows, end));
    tile.spread(pivot, [&](int64_t set) {
      const Moments m = moments.get(static_cast<size_t>(set));
      return static_cast<T>(m.pivot + m.rest);
    });
  }
  if (reduce(end)) {
    const double count = tile.set_elements(begin, end);
    tile.spread(pivot, [&](int64_t set) {
      const Moments m = moments.get(static_cast<size_t>(set));
      return static_cast<T>(is_far(count, m) ? m.pivot + m.rest : m.pivot);
    });
    reduce(end);
  }
}

/// Adds the moments of a block to those of all rows before it.
void merge_into(bool raw, TileMoments& all, double count, const double* pivot, const double* rest, const double* m2,
                double block_count) {
  for (size_t set = 0; set < all.pivot.size(); ++set) {
    all.set(set, count == 0 ? Moments{pivot[set], rest[set], m2[set]}
                            : merge(raw, all.get(set), count, {pivot[set], rest[set], m2[set]}, block_count));
  }
}

template <class T>
void store_tile_statistics(const NormProblem& problem, const ColumnTile& tile, const TileMoments& moments,
                           const NormForward<T>& arrays) {
  for (int64_t set = 0; set < tile.sets; ++set) {
    store_statistics(problem, moments.get(static_cast<size_t>(set)), arrays, tile.first_set + set);
  }
}

/// y of some rows, once the statistics are known.
template <class T>
void apply_rows(const NormProblem& problem, const ColumnTile& tile, int64_t outer, int64_t begin, int64_t end,
                const NormForward<T>& arrays, ForwardRows<T>& rows) {
  const AffineShape& affine = problem.affine;
  const Along along = along_of(affine);
  const std::span<T> mean = rows.scratch.row(0);
  const std::span<T> rest = rows.scratch.row(1);
  const std::span<T> scale = rows.scratch.row(2);
  const std::span<T> shift = rows.scratch.row(3);
  tile.spread(mean, [&](int64_t set) { return arrays.mean[tile.first_set + set]; });
  tile.spread(rest, [&](int64_t set) { return arrays.rest[tile.first_set + set]; });
  tile.spread(scale, [&](int64_t set) { return arrays.rstd[tile.first_set + set]; });
  if (along == Along::columns) {
    const std::span<T> weight = rows.scratch.row(4);
    gather_columns(affine, tile, outer, arrays.weight, weight);
    gather_columns(affine, tile, outer, arrays.bias, shift);
    for (size_t j = 0; j < static_cast<size_t>(tile.width); ++j) {
      scale[j] *= weight[j];
    }
  }
  const int64_t weights = affine_offset(affine, outer);
  const bool with_epilogue = arrays.epilogue.present();
  for (int64_t row = begin; row < end; ++row) {
    const int64_t width = tile.width_of(row);
    const T* x = arrays.x + tile.offset + row * tile.stride;
    T* y = arrays.y + tile.offset + row * tile.stride;
    switch (along) {
      case Along::none: apply_run(width, x, y, mean.data(), rest.data(), scale.data(), Same<T>{0}); break;
      case Along::columns: apply_run(width, x, y, mean.data(), rest.data(), scale.data(), shift.data()); break;
      case Along::rows:
        apply_run(width, x, y, mean.data(), rest.data(), Times{scale.data(), Same<T>{arrays.weight[weights + row]}},
                  Same<T>{arrays.bias[weights + row]});
        break;
      case Along::both: {
        const int64_t at = weights + tile.first_kept * tile.neighbours + row * tile.stride;
        apply_run(width, x, y, mean.data(), rest.data(), Times{scale.data(), arrays.weight + at}, arrays.bias + at);
        break;
      }
    }
    if (with_epilogue) {
      epilogue_run(arrays.epilogue, tile.offset + row * tile.stride, width, y);
    }
  }
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
    : shape(problem.shape), widen(along_of(problem.affine) != Along::rows) {
  const int64_t row_bytes = shape.reduce_inner * element_bytes * arrays;  // one narrow row of one set
  const int64_t fitting = kCacheBytes / (shape.reduce_outer * row_bytes);
  const int64_t most = std::clamp<int64_t>(kMaxColumns / shape.reduce_inner, 1, shape.kept);
  const int64_t least = std::clamp<int64_t>(ceil_div(kMinColumns, shape.reduce_inner), 1, most);
  in_cache = fitting >= least;
  sets_per_tile = in_cache ? std::min(most, fitting) : most;
  tiles = ceil_div(shape.kept, sets_per_tile);
  sets_per_tile = ceil_div(shape.kept, tiles);  // tiles of about the same size
  const ColumnTile first = tile(0, 0);
  rows_per_block = std::max<int64_t>(8, kCacheBytes / (first.width * element_bytes * arrays));
  rows_per_block = std::min({rows_per_block, kMaxBlockRows, first.rows});
  blocks = ceil_div(first.rows, rows_per_block);
}

ColumnTile ColumnTiling::tile(int64_t outer, int64_t number) const {
  ColumnTile t;
  t.first_kept = number * sets_per_tile;
  t.first_set = outer * shape.kept + t.first_kept;
  t.sets = std::min(sets_per_tile, shape.kept - t.first_kept);
  t.neighbours = shape.reduce_inner;
  t.columns = t.sets * t.neighbours;
  t.offset = (outer * shape.reduce_outer * shape.kept + t.first_kept) * shape.reduce_inner;
  if (widen && t.sets == shape.kept && t.columns < kMinWidth) {
    t.copies = std::min(ceil_div(kMinWidth, t.columns), shape.reduce_outer);
  }
  t.rows = ceil_div(shape.reduce_outer, t.copies);
  t.width = t.columns * t.copies;
  t.last_width = (shape.reduce_outer - (t.rows - 1) * t.copies) * t.columns;
  t.stride = shape.kept * shape.reduce_inner * t.copies;
  return t;
}

template <class T>
void columns_forward(const NormProblem& problem, const NormForward<T>& arrays) {
  const NormShape& shape = problem.shape;
  const ColumnTiling tiling(problem, 1, sizeof(T));
  const int64_t tasks = shape.outer * tiling.tiles;
  const int64_t task_elements = std::max<int64_t>(1, shape.numel() / tasks);
  const int64_t width = tiling.tile(0, 0).width;

  if (tiling.in_cache && !problem.given_statistics) {
    parallel_for(0, tasks, ceil_div(kPointwiseGrain, task_elements), [&](int64_t begin, int64_t end) {
      ForwardRows<T> rows(width);
      for (int64_t task = begin; task < end; ++task) {
        const int64_t outer = task / tiling.tiles;
        const ColumnTile tile = tiling.tile(outer, task % tiling.tiles);
        TileMoments all(tile.sets);
        TileMoments block(tile.sets);
        double count = 0;
        for (int64_t row = 0; row < tile.rows; row += tiling.rows_per_block) {
          const int64_t last = std::min(row + tiling.rows_per_block, tile.rows);
          block_moments(problem.raw_sums(), tile, arrays.x + tile.offset, row, last, rows, block);
          const double block_count = tile.set_elements(row, last);
          merge_into(problem.raw_sums(), all, count, block.pivot.data(), block.rest.data(), block.m2.data(),
                     block_count);
          count += block_count;
        }
        store_tile_statistics(problem, tile, all, arrays);
        if (arrays.y != nullptr) {
          apply_rows(problem, tile, outer, 0, tile.rows, arrays, rows);
        }
      }
    });
    return;
  }

  // Sets too large for the cache: blocks of rows in parallel, first for their moments, then for y.
  const int64_t block_elements = std::max<int64_t>(1, task_elements / tiling.blocks);
  const int64_t grain = ceil_div(kPointwiseGrain, block_elements);
  const auto for_each_block = [&](auto&& f) {
    parallel_for(0, tasks * tiling.blocks, grain, [&](int64_t begin, int64_t end) {
      ForwardRows<T> rows(width);
      for (int64_t i = begin; i < end; ++i) {
        // Tiles of one block are neighbours in memory: they come one after the other.
        const int64_t outer = i / (tiling.tiles * tiling.blocks);
        const int64_t block = i / tiling.tiles % tiling.blocks;
        const ColumnTile tile = tiling.tile(outer, i % tiling.tiles);
        const int64_t first = block * tiling.rows_per_block;
        f(outer, block, tile, first, std::min(first + tiling.rows_per_block, tile.rows), rows);
      }
    });
  };
  if (!problem.given_statistics) {
    const auto sets = static_cast<size_t>(shape.sets());
    std::vector<double> pivots(sets * static_cast<size_t>(tiling.blocks));
    std::vector<double> rests(pivots.size());
    std::vector<double> m2s(pivots.size());
    const auto place = [&](int64_t block, const ColumnTile& tile) {
      return static_cast<size_t>(block) * sets + static_cast<size_t>(tile.first_set);
    };
    for_each_block([&](int64_t, int64_t block, const ColumnTile& tile, int64_t first, int64_t last,
                       ForwardRows<T>& rows) {
      TileMoments moments(tile.sets);
      block_moments(problem.raw_sums(), tile, arrays.x + tile.offset, first, last, rows, moments);
      std::copy(moments.pivot.begin(), moments.pivot.end(),
                pivots.begin() + static_cast<std::ptrdiff_t>(place(block, tile)));
      std::copy(moments.rest.begin(), moments.rest.end(),
                rests.begin() + static_cast<std::ptrdiff_t>(place(block, tile)));
      std::copy(moments.m2.begin(), moments.m2.end(), m2s.begin() + static_cast<std::ptrdiff_t>(place(block, tile)));
    });
    parallel_for(0, tasks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const ColumnTile tile = tiling.tile(task / tiling.tiles, task % tiling.tiles);
        TileMoments all(tile.sets);
        double count = 0;
        for (int64_t block = 0; block < tiling.blocks; ++block) {
          const int64_t first = block * tiling.rows_per_block;
          const double block_count = tile.set_elements(first, std::min(first + tiling.rows_per_block, tile.rows));
          const size_t at = place(block, tile);
          merge_into(problem.raw_sums(), all, count, &pivots[at], &rests[at], &m2s[at], block_count);
          count += block_count;
        }
        store_tile_statistics(problem, tile, all, arrays);
      }
    });
  }
  if (arrays.y == nullptr) {
    return;
  }
  for_each_block([&](int64_t outer, int64_t, const ColumnTile& tile, int64_t first, int64_t last,
                     ForwardRows<T>& rows) { apply_rows(problem, tile, outer, first, last, arrays, rows); });
}

template void columns_forward(const NormProblem&, const NormForward<float>&);
template void columns_forward(const NormProblem&, const NormForward<double>&);

}  // namespace norma::norm_kernels::cpu

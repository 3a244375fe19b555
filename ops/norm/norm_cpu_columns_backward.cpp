#include "ops/norm/norm_cpu_columns.h"

namespace norma::norm_kernels::cpu {

namespace {

/// Rows whose sums are added up in T before they are carried on in double.
constexpr int64_t kRowsInT = 16;

/// What backward holds per column of a tile.
template <class T>
struct BackwardRows {
  explicit BackwardRows(int64_t width) : scratch(9, width), sums(2, width) {}
  ColumnScratch<T> scratch;
  ColumnScratch<double> sums;
  std::span<T> mean = scratch.row(0);
  std::span<T> rest = scratch.row(1);
  std::span<T> rstd = scratch.row(2);
  std::span<T> by_dy = scratch.row(3);
  std::span<T> by_xhat = scratch.row(4);
  std::span<T> shift = scratch.row(5);
  std::span<T> weight = scratch.row(6);
  std::span<T> first_part = scratch.row(7);  ///< of a few rows, on their way to first and second
  std::span<T> second_part = scratch.row(8);
  std::span<double> first = sums.row(0);   ///< sums of dy, or of g = dy * weight where weights vary from row to row
  std::span<double> second = sums.row(1);  ///< the same, times xhat
};

template <class T>
void load_statistics(const ColumnTile& tile, const NormBackward<T>& arrays, BackwardRows<T>& rows) {
  tile.spread(rows.mean, [&](int64_t set) { return arrays.mean[tile.first_set + set]; });
  tile.spread(rows.rest, [&](int64_t set) { return arrays.rest[tile.first_set + set]; });
  tile.spread(rows.rstd, [&](int64_t set) { return arrays.rstd[tile.first_set + set]; });
}

/// first[j] = sum of dy, second[j] = sum of dy * xhat over some rows: four of them in T, then on in double.
template <class T>
void column_sums(const ColumnTile& tile, const T* dy, const T* x, int64_t begin, int64_t end,
                 const BackwardRows<T>& rows) {
  const T* mean = rows.mean.data();
  const T* rest = rows.rest.data();
  const T* rstd = rows.rstd.data();
  double* first = rows.first.data();
  double* second = rows.second.data();
  std::fill_n(first, tile.width, 0.0);
  std::fill_n(second, tile.width, 0.0);
  int64_t row = begin;
  for (; row + 4 <= std::min(end, tile.rows - 1); row += 4) {
    const T* dy0 = dy + row * tile.stride;
    const T* dy1 = dy0 + tile.stride;
    const T* dy2 = dy1 + tile.stride;
    const T* dy3 = dy2 + tile.stride;
    const T* x0 = x + row * tile.stride;
    const T* x1 = x0 + tile.stride;
    const T* x2 = x1 + tile.stride;
    const T* x3 = x2 + tile.stride;
#pragma omp simd
    for (int64_t j = 0; j < tile.width; ++j) {
      const T m = mean[j];
      const T r = rest[j];
      const T s = rstd[j];
      first[j] += (dy0[j] + dy1[j]) + (dy2[j] + dy3[j]);
      second[j] += (dy0[j] * (((x0[j] - m) - r) * s) + dy1[j] * (((x1[j] - m) - r) * s)) +
                   (dy2[j] * (((x2[j] - m) - r) * s) + dy3[j] * (((x3[j] - m) - r) * s));
    }
  }
  for (; row < end; ++row) {
    const T* dy0 = dy + row * tile.stride;
    const T* x0 = x + row * tile.stride;
    const int64_t width = tile.width_of(row);
#pragma omp simd
    for (int64_t j = 0; j < width; ++j) {
      first[j] += dy0[j];
      second[j] += dy0[j] * (((x0[j] - mean[j]) - rest[j]) * rstd[j]);
    }
  }
}

/// The same with g = dy * weight in place of dy, for weights that vary from row to row. Also adds to their gradients,
/// unless `dweight` is null. All pointers stand at the tile's first element or weight.
template <class Sum, class T>
void weighted_column_sums(const ColumnTile& tile, const T* dy, const T* x, const T* weight, Sum* dweight, Sum* dbias,
                          bool varies_along_row, const BackwardRows<T>& rows) {
  const T* mean = rows.mean.data();
  const T* rest = rows.rest.data();
  const T* rstd = rows.rstd.data();
  double* first = rows.first.data();
  double* second = rows.second.data();
  std::fill_n(first, tile.width, 0.0);
  std::fill_n(second, tile.width, 0.0);
  const std::span<T> first_part = rows.first_part;
  const std::span<T> second_part = rows.second_part;
  std::fill(first_part.begin(), first_part.end(), T(0));
  std::fill(second_part.begin(), second_part.end(), T(0));
  const auto carry_on = [&] {
    for (int64_t j = 0; j < tile.width; ++j) {
      first[j] += first_part[static_cast<size_t>(j)];
      second[j] += second_part[static_cast<size_t>(j)];
    }
    std::fill(first_part.begin(), first_part.end(), T(0));
    std::fill(second_part.begin(), second_part.end(), T(0));
  };
  for (int64_t row = 0; row < tile.rows; ++row, dy += tile.stride, x += tile.stride) {
    const int64_t width = tile.width_of(row);
    T* first_in_t = first_part.data();
    T* second_in_t = second_part.data();
    if (varies_along_row) {
      const T* w = weight == nullptr ? nullptr : weight + row * tile.stride;
      if constexpr (std::is_same_v<Sum, T>) {
        if (dweight != nullptr) {
          weight_gradient_run(width, dy, x, mean, rest, rstd, dweight + row * tile.stride, dbias + row * tile.stride);
        }
      }
#pragma omp simd
      for (int64_t j = 0; j < width; ++j) {
        const T g = w == nullptr ? dy[j] : dy[j] * w[j];
        first_in_t[j] += g;
        second_in_t[j] += g * (((x[j] - mean[j]) - rest[j]) * rstd[j]);
      }
    } else {
      const T w = weight == nullptr ? T(1) : weight[row];
      const Pair<double> sums = sum_run<T>(width, [=](int64_t j) {
        const T xhat = ((x[j] - mean[j]) - rest[j]) * rstd[j];
        const T g = dy[j] * w;
        first_in_t[j] += g;
        second_in_t[j] += g * xhat;
        return Pair<T>{dy[j] * xhat, dy[j]};
      });
      if (dweight != nullptr) {
        dweight[row] += static_cast<Sum>(sums.first);
        dbias[row] += static_cast<Sum>(sums.second);
      }
    }
    if (row % kRowsInT == kRowsInT - 1) {
      carry_on();
    }
  }
  carry_on();
}

/// dx of some rows. The pointers stand at the tile's first element or weight.
template <class T>
void input_gradient_rows(bool given, const ColumnTile& tile, Along along, const T* dy, const T* x, T* dx,
                         const T* weight, int64_t begin, int64_t end, const BackwardRows<T>& rows) {
  const T* mean = rows.mean.data();
  const T* rest = rows.rest.data();
  const T* rstd = rows.rstd.data();
  const T* by_dy = rows.by_dy.data();
  const T* by_xhat = rows.by_xhat.data();
  const T* shift = rows.shift.data();
  for (int64_t row = begin; row < end; ++row) {
    const int64_t at = row * tile.stride;
    const int64_t width = tile.width_of(row);
    if (along == Along::rows && weight != nullptr) {
      input_gradient_run(given, width, dy + at, x + at, dx + at, mean, rest, rstd, Times{by_dy, Same<T>{weight[row]}},
                         by_xhat, shift);
    } else if (along == Along::both && weight != nullptr) {
      input_gradient_run(given, width, dy + at, x + at, dx + at, mean, rest, rstd, Times{by_dy, weight + at}, by_xhat,
                         shift);
    } else {
      input_gradient_run(given, width, dy + at, x + at, dx + at, mean, rest, rstd, by_dy, by_xhat, shift);
    }
  }
}

/// Per column of a tile: the sums of dy and dy * xhat over all rows; per set: those of g.
struct TileSums {
  TileSums(int64_t columns, int64_t sets)
      : dy(static_cast<size_t>(columns)),
        dy_xhat(static_cast<size_t>(columns)),
        g(static_cast<size_t>(sets)),
        g_xhat(static_cast<size_t>(sets)) {}
  std::vector<double> dy;
  std::vector<double> dy_xhat;
  std::vector<double> g;
  std::vector<double> g_xhat;
};

/// g and g_xhat of each set from the sums of its columns. `weight`: a row, or null for 1.
template <class T>
void sum_sets(const ColumnTile& tile, const T* weight, TileSums& sums) {
  for (size_t set = 0, column = 0; set < static_cast<size_t>(tile.sets); ++set) {
    sums.g[set] = 0;
    sums.g_xhat[set] = 0;
    for (int64_t i = 0; i < tile.neighbours; ++i, ++column) {
      const double w = weight == nullptr ? 1.0 : static_cast<double>(weight[column]);
      sums.g[set] += w * sums.dy[column];
      sums.g_xhat[set] += w * sums.dy_xhat[column];
    }
  }
}

/// Adds the columns' sums to the gradients of their weights, for Along::columns.
template <class Sum>
void add_weight_gradients(const AffineShape& affine, const ColumnTile& tile, int64_t outer, const TileSums& sums,
                          Sum* dweight, Sum* dbias) {
  const int64_t offset = affine_offset(affine, outer);
  for_each_column_weight(affine, tile, [&](int64_t column, int64_t i) {
    const auto c = static_cast<size_t>(column);
    dweight[offset + i] += static_cast<Sum>(sums.dy_xhat[c]);
    dbias[offset + i] += static_cast<Sum>(sums.dy[c]);
  });
}

/// Coefficients of dx = dy * by_dy + (x - mean) * rstd * by_xhat + shift, with by_dy = rstd * weight; see
/// input_gradient(). From here on mean and rest are those of centre_of().
template <class T>
void set_coefficients(const NormProblem& problem, const ColumnTile& tile, const TileSums& sums, const T* weight,
                      const NormBackward<T>& arrays, BackwardRows<T>& rows) {
  const auto gradient_of = [&](int64_t set) {
    return input_gradient(problem, arrays.rstd[tile.first_set + set], sums.g[static_cast<size_t>(set)],
                          sums.g_xhat[static_cast<size_t>(set)]);
  };
  tile.spread(rows.by_xhat, [&](int64_t set) { return static_cast<T>(gradient_of(set).by_xhat); });
  tile.spread(rows.shift, [&](int64_t set) { return static_cast<T>(gradient_of(set).shift); });
  if (arrays.centre != nullptr) {
    tile.spread(rows.mean, [&](int64_t set) { return arrays.centre[tile.first_set + set]; });
    tile.spread(rows.rest, [&](int64_t set) { return arrays.centre_rest[tile.first_set + set]; });
  }
  for (size_t j = 0; j < static_cast<size_t>(tile.width); ++j) {
    rows.by_dy[j] = weight == nullptr ? rows.rstd[j] : rows.rstd[j] * weight[j];
  }
}

void add_to(std::vector<double>& sums, const double* part) {
  for (size_t i = 0; i < sums.size(); ++i) {
    sums[i] += part[i];
  }
}

/// One tile after the other, both passes while it is in the cache.
template <class Sum, class T>
void backward_in_cache(const NormProblem& problem, const NormBackward<T>& arrays, const ColumnTiling& tiling) {
  const NormShape& shape = problem.shape;
  const AffineShape& affine = problem.affine;
  const Along along = along_of(affine);
  const bool weights_wanted = arrays.dweight != nullptr || arrays.dbias != nullptr;

  // Tiles whose weights are theirs alone share a part of the weight gradients; a part serves several outer indices.
  const bool own_weights = affine.kept > 1;
  const int64_t outer_per_part = ceil_div(shape.outer, affine.numel() > 4096 ? kMaxPartials / 4 : kMaxPartials);
  const int64_t outer_parts = ceil_div(shape.outer, outer_per_part);
  WeightGradients<Sum> gradients(weights_wanted, own_weights ? outer_parts : outer_parts * tiling.tiles,
                                 affine.numel());

  const int64_t tasks = outer_parts * tiling.tiles;
  const int64_t task_elements = std::max<int64_t>(1, shape.numel() / tasks);
  parallel_for(0, tasks, ceil_div(kPointwiseGrain, task_elements), [&](int64_t begin, int64_t end) {
    BackwardRows<T> rows(tiling.tile(0, 0).width);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t outer_part = task / tiling.tiles;
      const int64_t part = own_weights ? outer_part : task;
      Sum* dweight = gradients.wanted() ? gradients.dweight(part) : nullptr;
      Sum* dbias = gradients.wanted() ? gradients.dbias(part) : nullptr;
      for (int64_t outer = outer_part * outer_per_part;
           outer < std::min((outer_part + 1) * outer_per_part, shape.outer); ++outer) {
        const ColumnTile tile = tiling.tile(outer, task % tiling.tiles);
        const T* dy = arrays.dy + tile.offset;
        const T* x = arrays.x + tile.offset;
        TileSums sums(tile.columns, tile.sets);
        load_statistics(tile, arrays, rows);
        const T* weight_row = nullptr;
        const T* weight = nullptr;  // of the tile's first row
        if (along == Along::rows || along == Along::both) {
          const int64_t at =
              affine_offset(affine, outer) + (along == Along::both ? tile.first_kept * tile.neighbours : 0);
          weight = arrays.weight == nullptr ? nullptr : arrays.weight + at;
          weighted_column_sums(tile, dy, x, weight, dweight == nullptr ? nullptr : dweight + at,
                               dbias == nullptr ? nullptr : dbias + at, along == Along::both, rows);
          tile.fold(rows.first);
          tile.fold(rows.second);
          add_to(sums.dy, rows.first.data());
          add_to(sums.dy_xhat, rows.second.data());
          sum_sets<T>(tile, nullptr, sums);
        } else {
          for (int64_t row = 0; row < tile.rows; row += tiling.rows_per_block) {
            column_sums(tile, dy, x, row, std::min(row + tiling.rows_per_block, tile.rows), rows);
            tile.fold(rows.first);
            tile.fold(rows.second);
            add_to(sums.dy, rows.first.data());
            add_to(sums.dy_xhat, rows.second.data());
          }
          if (arrays.weight != nullptr) {
            gather_columns(affine, tile, outer, arrays.weight, rows.weight);
            weight_row = rows.weight.data();
          }
          sum_sets(tile, weight_row, sums);
          if (dweight != nullptr) {
            add_weight_gradients(affine, tile, outer, sums, dweight, dbias);
          }
        }
        if (arrays.dx != nullptr) {
          set_coefficients(problem, tile, sums, weight_row, arrays, rows);
          input_gradient_rows(problem.given_statistics, tile, along, dy, x, arrays.dx + tile.offset, weight, 0,
                              tile.rows, rows);
        }
      }
    }
  });
  gradients.total(arrays.dweight, arrays.dbias);
}

/// Sets too large for the cache: blocks of rows in parallel, first for their sums, then for dx.
template <class T>
void backward_in_blocks(const NormProblem& problem, const NormBackward<T>& arrays, const ColumnTiling& tiling) {
  const NormShape& shape = problem.shape;
  const AffineShape& affine = problem.affine;
  const bool weights_wanted = arrays.dweight != nullptr || arrays.dbias != nullptr;
  const bool sums_wanted = weights_wanted || !problem.given_statistics;
  const int64_t tasks = shape.outer * tiling.tiles;
  const int64_t width = tiling.tile(0, 0).width;
  const int64_t all_columns = shape.outer * shape.kept * shape.reduce_inner;
  const auto first_column = [&](const ColumnTile& tile) { return tile.first_set * shape.reduce_inner; };
  const int64_t block_elements = std::max<int64_t>(1, shape.numel() / (tasks * tiling.blocks));
  const auto for_each_block = [&](auto&& f) {
    parallel_for(0, tasks * tiling.blocks, ceil_div(kPointwiseGrain, block_elements), [&](int64_t begin, int64_t end) {
      BackwardRows<T> rows(width);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t outer = i / (tiling.tiles * tiling.blocks);
        const int64_t block = i / tiling.tiles % tiling.blocks;
        const ColumnTile tile = tiling.tile(outer, i % tiling.tiles);
        const int64_t first = block * tiling.rows_per_block;
        load_statistics(tile, arrays, rows);
        f(outer, block, tile, first, std::min(first + tiling.rows_per_block, tile.rows), rows);
      }
    });
  };

  // Block by block: a row with the sums of dy, a row with those of dy * xhat.
  std::vector<double> parts(sums_wanted ? static_cast<size_t>(2 * tiling.blocks * all_columns) : 0);
  if (sums_wanted) {
    for_each_block(
        [&](int64_t, int64_t block, const ColumnTile& tile, int64_t first, int64_t last, BackwardRows<T>& rows) {
          column_sums(tile, arrays.dy + tile.offset, arrays.x + tile.offset, first, last, rows);
          tile.fold(rows.first);
          tile.fold(rows.second);
          double* part = parts.data() + 2 * block * all_columns + first_column(tile);
          std::copy_n(rows.first.data(), tile.columns, part);
          std::copy_n(rows.second.data(), tile.columns, part + all_columns);
        });
  }

  WeightGradients<double> gradients(weights_wanted, 1, affine.numel());
  std::vector<TileSums> totals;
  totals.reserve(static_cast<size_t>(tasks));
  BackwardRows<T> rows(width);
  for (int64_t task = 0; task < tasks; ++task) {
    const int64_t outer = task / tiling.tiles;
    const ColumnTile tile = tiling.tile(outer, task % tiling.tiles);
    TileSums& sums = totals.emplace_back(tile.columns, tile.sets);
    if (!sums_wanted) {
      continue;
    }
    for (int64_t block = 0; block < tiling.blocks; ++block) {
      const double* part = parts.data() + 2 * block * all_columns + first_column(tile);
      add_to(sums.dy, part);
      add_to(sums.dy_xhat, part + all_columns);
    }
    const T* weight_row = nullptr;
    if (arrays.weight != nullptr) {
      gather_columns(affine, tile, outer, arrays.weight, rows.weight);
      weight_row = rows.weight.data();
    }
    sum_sets(tile, weight_row, sums);
    if (weights_wanted) {
      load_statistics(tile, arrays, rows);
      add_weight_gradients(affine, tile, outer, sums, gradients.dweight(0), gradients.dbias(0));
    }
  }
  gradients.total(arrays.dweight, arrays.dbias);

  if (arrays.dx == nullptr) {
    return;
  }
  for_each_block(
      [&](int64_t outer, int64_t, const ColumnTile& tile, int64_t first, int64_t last, BackwardRows<T>& tile_rows) {
        const T* weight_row = nullptr;
        if (arrays.weight != nullptr) {
          gather_columns(affine, tile, outer, arrays.weight, tile_rows.weight);
          weight_row = tile_rows.weight.data();
        }
        const TileSums& sums = totals[static_cast<size_t>(tile.first_set / shape.kept * tiling.tiles +
                                                          tile.first_kept / tiling.sets_per_tile)];
        set_coefficients(problem, tile, sums, weight_row, arrays, tile_rows);
        input_gradient_rows<T>(problem.given_statistics, tile, Along::columns, arrays.dy + tile.offset,
                               arrays.x + tile.offset, arrays.dx + tile.offset, nullptr, first, last, tile_rows);
      });
}

}  // namespace

template <class T>
void columns_backward(const NormProblem& problem, const NormBackward<T>& arrays) {
  const ColumnTiling tiling(problem, 2, sizeof(T));
  const Along along = along_of(problem.affine);
  const bool varies_by_row = along == Along::rows || along == Along::both;
  if (varies_by_row || (tiling.in_cache && !problem.given_statistics)) {
    along == Along::both ? backward_in_cache<T>(problem, arrays, tiling)
                         : backward_in_cache<double>(problem, arrays, tiling);
  } else {
    backward_in_blocks(problem, arrays, tiling);
  }
}

template void columns_backward(const NormProblem&, const NormBackward<float>&);
template void columns_backward(const NormProblem&, const NormBackward<double>&);

}  // namespace norma::norm_kernels::cpu

#include "ops/norm/cpu/column_gradients.h"
#include "ops/norm/cpu/columns.h"
#include "ops/norm/cpu/weight_gradients.h"

// How backward of columns is shared out: tile by tile, or all tiles at once in chunks of rows.

namespace norma::kernels::cpu {

namespace {

bool varies_from_row_to_row(const AffineShape& affine) {
  const Along along = along_of(affine);
  return along == Along::rows || along == Along::both;
}

/// Which part of the weight gradients a tile adds to. Tiles whose weights are theirs alone share a part; a part serves
/// several outer indices.
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

/// One tile after the other.
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

/// All tiles at once, chunk by chunk.
template <class S>
void backward_by_chunks(const NormProblem& problem, const BackwardArrays<S>& arrays, const ColumnTiling& tiling) {
  const NormShape& shape = problem.shape;
  const bool weights_wanted = arrays.dweight != nullptr || arrays.dbias != nullptr;
  const int64_t all_columns = shape.outer * shape.kept * shape.reduce_inner;
  const int64_t pieces = tiling.tasks() * tiling.chunks;
  const int64_t grain = ceil_div(kPointwiseGrain, std::max<int64_t>(1, shape.numel() / pieces));
  // Tiles of one chunk are neighbours in memory: they come one after the other.
  const auto piece = [&](int64_t i, auto&& f) {
    const int64_t chunk = i / tiling.tiles % tiling.chunks;
    const ColumnTile tile = tiling.tile(i / (tiling.tiles * tiling.chunks), i % tiling.tiles);
    f(tile, chunk, tile.first_set * shape.reduce_inner);
  };

  // For each chunk a row with the sums of dz of all columns, and one with those of dz * xhat.
  Scratch shared;
  double* totals = shared.zeros<double>(2 * all_columns);
  if (weights_wanted || !problem.fixed_stats) {
    double* chunks = shared.take<double>(2 * tiling.chunks * all_columns);
    parallel_for(0, pieces, grain, [&](int64_t begin, int64_t end) {
      Scratch scratch;
      ColumnsBackward<S> columns(problem, arrays, tiling, scratch);
      for (int64_t i = begin; i < end; ++i) {
        piece(i, [&](const ColumnTile& tile, int64_t chunk, int64_t first_column) {
          columns.begin_tile(tile);
          columns.add_up(tile, tiling.first_row(chunk), tiling.last_row(chunk, tile));
          double* to = chunks + 2 * chunk * all_columns + first_column;
          std::copy_n(columns.sum(), tile.columns, to);
          std::copy_n(columns.sum_xhat(), tile.columns, to + all_columns);
        });
      }
    });
    for (int64_t chunk = 0; chunk < tiling.chunks; ++chunk) {
      for (int64_t i = 0; i < 2 * all_columns; ++i) {
        totals[i] += chunks[2 * chunk * all_columns + i];
      }
    }
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
    for (int64_t i = end - 1; i >= begin; --i) {
      piece(i, [&](const ColumnTile& tile, int64_t chunk, int64_t first_column) {
        columns.begin_tile(tile);
        columns.set_constants(tile, sum + first_column, sum_xhat + first_column);
        columns.write(tile, tiling.first_row(chunk), tiling.last_row(chunk, tile));
      });
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

template void columns_backward(const NormProblem&, const BackwardArrays<float>&);
template void columns_backward(const NormProblem&, const BackwardArrays<double>&);
template void columns_backward(const NormProblem&, const BackwardArrays<bfloat16>&);
template void columns_backward(const NormProblem&, const BackwardArrays<float16>&);

}  // namespace norma::kernels::cpu

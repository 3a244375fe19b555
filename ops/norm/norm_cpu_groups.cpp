#include "ops/norm/norm_cpu.h"

// Groups: a set is several runs of memory with other sets between them (batch norm in NCHW, group norm in
// channels_last). Where the runs are short, they are columns; else neighbouring sets are walked together, run by run.

namespace norma::norm_kernels::cpu {

namespace {

/// Runs shorter than this are walked as columns.
constexpr int64_t kLongRun = 128;

/// Runs of neighbouring sets of one outer index.
struct RunTile {
  int64_t outer;
  int64_t first;  ///< place of the first set along `kept`
  int64_t last;
};

/// Sets that are walked together: as many as leave the tile in the cache, for long stretches of neighbouring memory.
class RunTiling {
 public:
  RunTiling(const NormShape& shape, int64_t arrays, int64_t element_bytes) : shape_(shape) {
    const int64_t set_bytes = shape.set_size() * element_bytes * arrays;
    sets_per_tile_ = std::clamp<int64_t>(kCacheBytes / set_bytes, 1, shape.kept);
    tiles_ = ceil_div(shape.kept, sets_per_tile_);
  }
  [[nodiscard]] int64_t tiles() const { return tiles_; }
  [[nodiscard]] RunTile tile(int64_t outer, int64_t number) const {
    const int64_t first = number * sets_per_tile_;
    return {outer, first, std::min(first + sets_per_tile_, shape_.kept)};
  }
  /// Calls f(set along kept, reduce_outer index, offset of the run) for every run, in the order of memory.
  template <class F>
  void for_each_run(const RunTile& tile, F&& f) const {
    for (int64_t a = 0; a < shape_.reduce_outer; ++a) {
      for (int64_t k = tile.first; k < tile.last; ++k) {
        f(k, a, ((tile.outer * shape_.reduce_outer + a) * shape_.kept + k) * shape_.reduce_inner);
      }
    }
  }
  [[nodiscard]] int64_t grain(int64_t tasks) const {
    return ceil_div(kPointwiseGrain, std::max<int64_t>(1, shape_.numel() / tasks));
  }

 private:
  NormShape shape_;
  int64_t sets_per_tile_;
  int64_t tiles_;
};

/// Index of the first weight of a run.
int64_t weight_index(const AffineShape& affine, int64_t outer, int64_t a, int64_t k) {
  return (((outer % affine.outer_period) * affine.reduce_outer + (affine.reduce_outer > 1 ? a : 0)) * affine.kept +
          (affine.kept > 1 ? k : 0)) *
         affine.inner;
}

template <class T>
void long_runs_forward(const NormProblem& problem, const NormForward<T>& arrays) {
  const NormShape& shape = problem.shape;
  const AffineShape& affine = problem.affine;
  const int64_t count = shape.reduce_inner;
  const bool with_epilogue = arrays.epilogue.present();
  const RunTiling tiling(shape, 1, sizeof(T));
  const int64_t tasks = shape.outer * tiling.tiles();
  parallel_for(0, tasks, tiling.grain(tasks), [&](int64_t begin, int64_t end) {
    std::vector<Moments> moments;
    for (int64_t task = begin; task < end; ++task) {
      const RunTile tile = tiling.tile(task / tiling.tiles(), task % tiling.tiles());
      const int64_t first_set = tile.outer * shape.kept;
      if (!problem.given_statistics) {
        moments.assign(static_cast<size_t>(tile.last - tile.first), Moments{});
        const bool raw = problem.raw_sums();
        tiling.for_each_run(tile, [&](int64_t k, int64_t a, int64_t offset) {
          Moments& all = moments[static_cast<size_t>(k - tile.first)];
          const Moments run = run_moments(raw, count, arrays.x + offset);
          all = a == 0 ? run : merge(raw, all, static_cast<double>(a * count), run, static_cast<double>(count));
        });
        for (int64_t k = tile.first; k < tile.last; ++k) {
          store_statistics(problem, moments[static_cast<size_t>(k - tile.first)], arrays, first_set + k);
        }
      }
      if (arrays.y == nullptr) {
        continue;
      }
      tiling.for_each_run(tile, [&](int64_t k, int64_t a, int64_t offset) {
        const T* x = arrays.x + offset;
        T* y = arrays.y + offset;
        const Same<T> mean{arrays.mean[first_set + k]};
        const Same<T> rest{arrays.rest[first_set + k]};
        const Same<T> rstd{arrays.rstd[first_set + k]};
        const int64_t i = weight_index(affine, tile.outer, a, k);
        if (!affine.present) {
          apply_run(count, x, y, mean, rest, rstd, Same<T>{0});
        } else if (affine.inner > 1) {
          apply_run(count, x, y, mean, rest, Times{rstd, arrays.weight + i}, arrays.bias + i);
        } else {
          apply_run(count, x, y, mean, rest, Same<T>{rstd.value * arrays.weight[i]}, Same<T>{arrays.bias[i]});
        }
        if (with_epilogue) {
          epilogue_run(arrays.epilogue, offset, count, y);
        }
      });
    }
  });
}

template <class Sum, class T>
void long_runs_backward(const NormProblem& problem, const NormBackward<T>& arrays) {
  const NormShape& shape = problem.shape;
  const AffineShape& affine = problem.affine;
  const int64_t count = shape.reduce_inner;
  const bool weights_wanted = arrays.dweight != nullptr || arrays.dbias != nullptr;
  const bool sums_wanted = weights_wanted || !problem.given_statistics;
  const RunTiling tiling(shape, 2, sizeof(T));

  // Tiles whose weights are theirs alone share a part of the weight gradients; a part serves several outer indices.
  const bool own_weights = affine.kept > 1;
  const int64_t outer_per_part = ceil_div(shape.outer, affine.numel() > 4096 ? kMaxPartials / 4 : kMaxPartials);
  const int64_t outer_parts = ceil_div(shape.outer, outer_per_part);
  WeightGradients<Sum> gradients(weights_wanted, own_weights ? outer_parts : outer_parts * tiling.tiles(),
                                 affine.numel());

  const int64_t tasks = outer_parts * tiling.tiles();
  parallel_for(0, tasks, tiling.grain(tasks), [&](int64_t begin, int64_t end) {
    std::vector<Pair<double>> sums;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t outer_part = task / tiling.tiles();
      const int64_t part = own_weights ? outer_part : task;
      for (int64_t outer = outer_part * outer_per_part;
           outer < std::min((outer_part + 1) * outer_per_part, shape.outer); ++outer) {
        const RunTile tile = tiling.tile(outer, task % tiling.tiles());
        const int64_t first_set = outer * shape.kept;
        sums.assign(static_cast<size_t>(tile.last - tile.first), Pair<double>{});
        if (sums_wanted) {
          tiling.for_each_run(tile, [&](int64_t k, int64_t a, int64_t offset) {
            const T* dy = arrays.dy + offset;
            const T* x = arrays.x + offset;
            const T mean = arrays.mean[first_set + k];
            const T rest = arrays.rest[first_set + k];
            const T rstd = arrays.rstd[first_set + k];
            const int64_t i = weight_index(affine, outer, a, k);
            Pair<double>& all = sums[static_cast<size_t>(k - tile.first)];
            if (affine.inner > 1) {
              const auto run = arrays.weight == nullptr
                                   ? long_gradient_sums(count, dy, x, mean, rest, rstd, Same<T>{1})
                                   : long_gradient_sums(count, dy, x, mean, rest, rstd, arrays.weight + i);
              all.first += run.first;
              all.second += run.second;
              if constexpr (std::is_same_v<Sum, T>) {
                if (weights_wanted) {
                  weight_gradient_run(count, dy, x, Same<T>{mean}, Same<T>{rest}, Same<T>{rstd},
                                      gradients.dweight(part) + i, gradients.dbias(part) + i);
                }
              }
              return;
            }
            const auto run = long_gradient_sums(count, dy, x, mean, rest, rstd, Same<T>{1});
            const double w = arrays.weight == nullptr ? 1.0 : static_cast<double>(arrays.weight[i]);
            all.first += w * run.first;
            all.second += w * run.second;
            if (weights_wanted) {
              gradients.dweight(part)[i] += static_cast<Sum>(run.second);
              gradients.dbias(part)[i] += static_cast<Sum>(run.first);
            }
          });
        }
        if (arrays.dx == nullptr) {
          continue;
        }
        tiling.for_each_run(tile, [&](int64_t k, int64_t a, int64_t offset) {
          const auto [mean, rest] = centre_of(arrays, first_set + k);
          const T rstd = arrays.rstd[first_set + k];
          const Pair<double>& all = sums[static_cast<size_t>(k - tile.first)];
          const InputGradient gradient = input_gradient(problem, rstd, all.first, all.second);
          const bool given = problem.given_statistics;
          const Same<T> scale{rstd};
          const Same<T> by_xhat{static_cast<T>(gradient.by_xhat)};
          const Same<T> shift{static_cast<T>(gradient.shift)};
          const int64_t i = weight_index(affine, outer, a, k);
          const T* dy = arrays.dy + offset;
          const T* x = arrays.x + offset;
          T* dx = arrays.dx + offset;
          if (affine.inner > 1 && arrays.weight != nullptr) {
            input_gradient_run(given, count, dy, x, dx, Same<T>{mean}, Same<T>{rest}, scale,
                               Times{scale, arrays.weight + i}, by_xhat, shift);
          } else {
            const T w = arrays.weight == nullptr ? T(1) : arrays.weight[i];
            input_gradient_run(given, count, dy, x, dx, Same<T>{mean}, Same<T>{rest}, scale, Same<T>{rstd * w}, by_xhat,
                               shift);
          }
        });
      }
    }
  });
  gradients.total(arrays.dweight, arrays.dbias);
}

}  // namespace

template <class T>
void groups_forward(const NormProblem& problem, const NormForward<T>& arrays) {
  if (problem.shape.reduce_inner < kLongRun) {
    columns_forward(problem, arrays);
  } else {
    long_runs_forward(problem, arrays);
  }
}

template <class T>
void groups_backward(const NormProblem& problem, const NormBackward<T>& arrays) {
  if (problem.shape.reduce_inner < kLongRun) {
    columns_backward(problem, arrays);
  } else {
    problem.affine.inner > 1 ? long_runs_backward<T>(problem, arrays) : long_runs_backward<double>(problem, arrays);
  }
}

template void groups_forward(const NormProblem&, const NormForward<float>&);
template void groups_forward(const NormProblem&, const NormForward<double>&);
template void groups_backward(const NormProblem&, const NormBackward<float>&);
template void groups_backward(const NormProblem&, const NormBackward<double>&);

}  // namespace norma::norm_kernels::cpu

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/norm/cpu/runs.cpp"
#include "core/simd/foreach_target.h"

#include "ops/norm/cpu/run_loops.h"
#include "ops/norm/cpu/walks.h"
#include "ops/norm/cpu/weight_gradients.h"

// Runs: a set is one or several runs of memory with one weight each (group norm, instance norm and batch norm in NCHW,
// and all norms without weights). Neighbouring sets are walked together, twice, while they stay in the cache.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

namespace {

/// The number of elements whose dz, or z before the activation, stand in L1 between two loops.
constexpr int64_t kPiece = 2048;
/// The number of sets whose constants are computed side by side.
constexpr int64_t kMaxSets = 256;

/// The places of runs: run r of set (outer o, kept k) begins at o * outer_stride + k * kept_stride + r * run_stride,
/// and its weight is number (o % period) * outer_weights + k * kept_weights + (r % run_period) * run_weights.
struct Runs {
  explicit Runs(const NormProblem& problem) {
    const NormShape& shape = problem.shape;
    const AffineShape& affine = problem.affine;
    if (shape.set_is_one_run()) {
      // A row is cut into the segments of the weights. Rows that do not share weights are the sets of one outer index.
      runs = affine.present ? affine.inner : 1;
      length = shape.reduce_inner / runs;
      kept = affine.present ? std::max<int64_t>(affine.outer_period, 1) : shape.outer;
      outer = shape.outer / kept;
      run_stride = length;
      kept_stride = shape.reduce_inner;
      outer_stride = kept * kept_stride;
      run_period = runs;
      run_weights = affine.present ? 1 : 0;
      kept_weights = affine.present ? affine.inner : 0;
      outer_weights = 0;
      set_by_set = true;
    } else {
      runs = shape.reduce_outer;
      length = shape.reduce_inner;
      kept = shape.kept;
      outer = shape.outer;
      kept_stride = length;
      run_stride = kept * length;
      outer_stride = runs * run_stride;
      period = affine.outer_period;
      kept_weights = affine.kept > 1 ? 1 : 0;
      run_period = affine.reduce_outer;
      run_weights = affine.reduce_outer > 1 ? affine.kept : 0;
      outer_weights = affine.per_outer();
    }
    own_weights = kept_weights > 0;
  }

  /// The first element, set and weight of an outer index.
  struct Outer {
    int64_t element;
    int64_t set;
    int64_t weight;
  };
  [[nodiscard]] Outer at(int64_t o) const { return {o * outer_stride, o * kept, (o % period) * outer_weights}; }
  [[nodiscard]] int64_t offset(const Outer& o, int64_t k, int64_t r) const {
    return o.element + k * kept_stride + r * run_stride;
  }
  [[nodiscard]] int64_t weight(const Outer& o, int64_t k, int64_t r) const {
    const int64_t in_period = r < run_period ? r : r % run_period;  // a division takes as long as a vector of a run
    return o.weight + k * kept_weights + in_period * run_weights;
  }
  /// Calls f(k, r) for the runs of sets first … last - 1 in the order of memory.
  template <class F>
  void for_each(int64_t first, int64_t last, F&& f) const {
    const int64_t all = runs * (last - first);
    for_each_by_blocks(first, last, all, f);
  }
  /// As for_each(), but the last block first, since the cache had the end of a tile last; in memory order within it.
  template <class F>
  void for_each_from_the_end(int64_t first, int64_t last, int64_t element_bytes, F&& f) const {
    for_each_by_blocks(first, last, std::max<int64_t>(1, kBackwardsBytes / (length * element_bytes)), f);
  }
  /// As for_each(), by blocks of about `block` runs, the last block first; in the order of memory within a block.
  template <class F>
  void for_each_by_blocks(int64_t first, int64_t last, int64_t block, F&& f) const {
    const int64_t sets = last - first;
    const int64_t slow = set_by_set ? sets : runs;
    const int64_t fast = set_by_set ? runs : sets;
    const int64_t slow_block = std::max<int64_t>(1, block / fast);
    for_each_block_from_the_end(0, slow, slow_block, [&](int64_t slow_begin, int64_t slow_end) {
      for_each_block_from_the_end(0, fast, slow_block > 1 ? fast : block, [&](int64_t fast_begin, int64_t fast_end) {
        for (int64_t i = slow_begin; i < slow_end; ++i) {
          for (int64_t j = fast_begin; j < fast_end; ++j) {
            set_by_set ? f(first + i, j) : f(first + j, i);
          }
        }
      });
    });
  }

  int64_t outer = 1;
  int64_t kept = 1;
  int64_t runs = 1;
  int64_t length = 1;
  int64_t outer_stride = 0;
  int64_t kept_stride = 0;
  int64_t run_stride = 0;
  int64_t period = 1;
  int64_t outer_weights = 0;
  int64_t kept_weights = 0;
  int64_t run_period = 1;
  int64_t run_weights = 0;
  bool set_by_set = false;
  bool own_weights = false;  ///< neighbouring sets along `kept` do not share weights
};

/// The number of sets walked together: as many as stay in the cache.
int64_t sets_per_tile(const Runs& runs, int64_t element_bytes) {
  const int64_t set_bytes = runs.runs * runs.length * element_bytes;
  return std::min({std::max<int64_t>(1, kCacheBytes / set_bytes), kMaxSets, runs.kept});
}

template <class S, class T = compute_t<S>>
class RunsForward {
 public:
  RunsForward(const NormProblem& problem, const ForwardArrays<S>& arrays, const Runs& runs, Scratch& scratch)
      : problem_(problem), arrays_(arrays), runs_(runs), out_(streams(problem, sizeof(S))) {
    if (arrays.activation != Activation::identity || arrays.residual != nullptr) {
      z_ = scratch.take<T>(std::min(kPiece, runs.length));
    }
  }

  void tile(const Runs::Outer& outer, int64_t first, int64_t last) const {
    if (!problem_.fixed_stats) {
      statistics(outer, first, last);
    }
    if (arrays_.y != nullptr) {
      runs_.for_each_from_the_end(first, last, sizeof(S), [&](int64_t k, int64_t r) { apply(outer, k, r); });
    }
  }

 private:
  void statistics(const Runs::Outer& outer, int64_t first, int64_t last) const {
    const bool raw = problem_.raw_sums();
    const int64_t sets = last - first;
    T pivot[kMaxSets];
    double sum[kMaxSets];
    double squares[kMaxSets];
    for (int64_t i = 0; i < sets; ++i) {
      pivot[i] = raw ? T(0) : mean_of_first(runs_.length, arrays_.x + runs_.offset(outer, first + i, 0));
    }
    const auto add_up = [&] {
      if (runs_.set_by_set) {  // the runs of a set join into one
        for (int64_t i = 0; i < sets; ++i) {
          const Pair<double> of_set =
              shifted_sums(runs_.runs * runs_.length, arrays_.x + runs_.offset(outer, first + i, 0), pivot[i]);
          sum[i] = of_set.first;
          squares[i] = of_set.second;
        }
        return;
      }
      std::fill_n(sum, sets, 0.0);
      std::fill_n(squares, sets, 0.0);
      runs_.for_each(first, last, [&](int64_t k, int64_t r) {
        const int64_t i = k - first;
        const Pair<double> of_run = shifted_sums(runs_.length, arrays_.x + runs_.offset(outer, k, r), pivot[i]);
        sum[i] += of_run.first;
        squares[i] += of_run.second;
      });
    };
    add_up();
    const auto count = static_cast<double>(problem_.shape.set_size());
    if (!raw && move_far_pivots(count, sets, pivot, sum, squares) > 0) [[unlikely]] {
      add_up();
    }
    store_sets(problem_, arrays_, outer.set + first, sets, pivot, sum, squares);
  }

  void apply(const Runs::Outer& outer, int64_t k, int64_t r) const {
    const int64_t set = outer.set + k;
    const bool affine = problem_.affine.present;
    const int64_t weight = runs_.weight(outer, k, r);
    const Same<T> mean{arrays_.mean[set]};
    const Same<T> mean_low{arrays_.mean_low[set]};
    const Same<T> scale{affine ? arrays_.rstd[set] * arrays_.weight[weight] : arrays_.rstd[set]};
    const Same<T> shift{affine ? arrays_.bias[weight] : T(0)};
    const int64_t offset = runs_.offset(outer, k, r);
    if (z_ == nullptr) {
      apply_run(runs_.length, arrays_.x + offset, arrays_.y + offset, mean, mean_low, scale, shift, out_);
      return;
    }
    for (int64_t begin = 0; begin < runs_.length; begin += kPiece) {
      const int64_t count = std::min(kPiece, runs_.length - begin);
      const int64_t at = offset + begin;
      activate_run(arrays_.activation, count, arrays_.x + at,
                   arrays_.residual == nullptr ? nullptr : arrays_.residual + at, arrays_.y + at,
                   arrays_.bits == nullptr ? nullptr : arrays_.bits + at / 8, z_, mean, mean_low, scale, shift, out_);
    }
  }

  const NormProblem& problem_;
  const ForwardArrays<S>& arrays_;
  const Runs& runs_;
  StreamingStore out_;
  T* z_ = nullptr;
};

template <class S, class T = compute_t<S>>
class RunsBackward {
 public:
  RunsBackward(const NormProblem& problem, const BackwardArrays<S>& arrays, const Runs& runs, Scratch& scratch)
      : problem_(problem), arrays_(arrays), runs_(runs), of_dx_(problem), out_(streams(problem, sizeof(S))) {
    if (computes_dz_apart(arrays)) {
      dz_ = scratch.take<T>(std::min(kPiece, runs.length));
    }
    weights_wanted_ = arrays.dweight != nullptr || arrays.dbias != nullptr;
  }

  /// dweight and dbias begin with the gradients of the weights, or are null.
  void tile(const Runs::Outer& outer, int64_t first, int64_t last, double* dweight, double* dbias) const {
    const int64_t sets = last - first;
    double sum[kMaxSets];
    double sum_xhat[kMaxSets];
    std::fill_n(sum, sets, 0.0);
    std::fill_n(sum_xhat, sets, 0.0);
    if (weights_wanted_ || !problem_.fixed_stats) {
      runs_.for_each(first, last, [&](int64_t k, int64_t r) {
        const int64_t weight = runs_.weight(outer, k, r);
        const double w = arrays_.weight == nullptr ? 1.0 : static_cast<double>(arrays_.weight[weight]);
        const Pair<double> of_run = sums(outer, k, r);
        sum[k - first] += w * of_run.first;
        sum_xhat[k - first] += w * of_run.second;
        if (dweight != nullptr) {
          dweight[weight] += of_run.second;
          dbias[weight] += of_run.first;
        }
      });
    }
    if (arrays_.dx == nullptr && arrays_.dresidual == nullptr) {
      return;
    }
    runs_.for_each_from_the_end(first, last, sizeof(S), [&](int64_t k, int64_t r) {
      write(outer, k, r, of_dx_.of<double>(arrays_.rstd[outer.set + k], sum[k - first], sum_xhat[k - first]));
    });
  }

 private:
  /// Computes dz of a piece of a run, where no operand does.
  void stage(int64_t set, int64_t weight, int64_t at, int64_t count, T* dz) const {
    slope_run(arrays_.activation, count, arrays_.x + at, arrays_.residual == nullptr ? nullptr : arrays_.residual + at,
              arrays_.dy + at, dz, Same<T>{arrays_.mean[set]}, Same<T>{arrays_.mean_low[set]},
              Same<T>{scale(set, weight)}, Same<T>{shift(weight)});
  }
  [[nodiscard]] T scale(int64_t set, int64_t weight) const {
    return arrays_.weight == nullptr ? arrays_.rstd[set] : arrays_.rstd[set] * arrays_.weight[weight];
  }
  [[nodiscard]] T shift(int64_t weight) const { return arrays_.bias == nullptr ? T(0) : arrays_.bias[weight]; }

  /// Calls f(dz, offset, count) for a run, or for its pieces where they are staged. `dresidual` receives dz, unless it
  /// is null.
  template <class F>
  void for_each_piece(const Runs::Outer& outer, int64_t k, int64_t r, S* dresidual, F&& f) const {
    const int64_t offset = runs_.offset(outer, k, r);
    if (arrays_.activation == Activation::identity) {
      return f(Given<S>{arrays_.dy + offset}, offset, runs_.length);
    }
    if (arrays_.bits != nullptr) {
      const WhereBits<S> dz{arrays_.dy + offset, arrays_.bits, offset};
      if (dresidual == nullptr) {
        return f(dz, offset, runs_.length);
      }
      return arrays_.dx == nullptr ? store_gradient_run(runs_.length, dz, dresidual + offset)
                                   : f(AndStored{dz, dresidual + offset}, offset, runs_.length);
    }
    const int64_t set = outer.set + k;
    const int64_t weight = runs_.weight(outer, k, r);
    if (dz_ == nullptr) {
      return f(WherePositive<S, Same<T>, Same<T>, Same<T>, Same<T>>{arrays_.dy + offset,
                                                                    arrays_.x + offset,
                                                                    {arrays_.mean[set]},
                                                                    {arrays_.mean_low[set]},
                                                                    {scale(set, weight)},
                                                                    {shift(weight)}},
               offset, runs_.length);
    }
    for (int64_t begin = 0; begin < runs_.length; begin += kPiece) {
      const int64_t count = std::min(kPiece, runs_.length - begin);
      T* dz = dz_;
      if constexpr (std::is_same_v<S, T>) {
        dz = dresidual == nullptr ? dz : dresidual + offset + begin;
      }
      stage(set, weight, offset + begin, count, dz);
      if constexpr (!std::is_same_v<S, T>) {
        if (dresidual != nullptr) {
          store_run(count, dz, dresidual + offset + begin);
        }
      }
      f(Given<T>{dz}, offset + begin, count);
    }
  }

  /// The sums of dz and dz * xhat over a run.
  [[nodiscard]] Pair<double> sums(const Runs::Outer& outer, int64_t k, int64_t r) const {
    const int64_t set = outer.set + k;
    Pair<double> all;
    for_each_piece(outer, k, r, nullptr, [&](auto dz, int64_t offset, int64_t count) {
      const Pair<double> part =
          gradient_sums(count, dz, arrays_.x + offset, arrays_.mean[set], arrays_.mean_low[set], arrays_.rstd[set]);
      all.first += part.first;
      all.second += part.second;
    });
    return all;
  }

  /// Writes dx and dresidual of a run.
  void write(const Runs::Outer& outer, int64_t k, int64_t r, const InputGradient<double>& gradient) const {
    const int64_t set = outer.set + k;
    const auto [mean, mean_low] = centre_of(arrays_, set);
    const T rstd = arrays_.rstd[set];
    const T w = arrays_.weight == nullptr ? T(1) : arrays_.weight[runs_.weight(outer, k, r)];
    const Same<T> by_dz{rstd * w};
    const Same<T> by_xhat{static_cast<T>(gradient.by_xhat)};
    const Same<T> shift{static_cast<T>(gradient.shift)};
    for_each_piece(outer, k, r, arrays_.dresidual,
                   [&, mean = mean, mean_low = mean_low](auto dz, int64_t offset, int64_t count) {
                     if (arrays_.dx != nullptr) {
                       input_gradient_run(problem_.fixed_stats, count, dz, arrays_.x + offset, arrays_.dx + offset,
                                          Same<T>{mean}, Same<T>{mean_low}, Same<T>{rstd}, by_dz, by_xhat, shift, out_);
                     }
                   });
  }

  const NormProblem& problem_;
  const BackwardArrays<S>& arrays_;
  const Runs& runs_;
  InputGradients of_dx_;
  StreamingStore out_;
  bool weights_wanted_;
  T* dz_ = nullptr;
};

}  // namespace

template <class S>
void runs_forward_of(const NormProblem& problem, const ForwardArrays<S>& arrays) {
  const Runs runs(problem);
  const int64_t per_tile = sets_per_tile(runs, sizeof(S));
  const int64_t tiles = ceil_div(runs.kept, per_tile);
  const int64_t tasks = runs.outer * tiles;
  const int64_t task_elements = std::max<int64_t>(1, problem.shape.numel() / tasks);
  parallel_for(0, tasks, ceil_div(kPointwiseGrain, task_elements), [&](int64_t begin, int64_t end) {
    Scratch scratch;
    const RunsForward<S> forward(problem, arrays, runs, scratch);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task % tiles * per_tile;
      forward.tile(runs.at(task / tiles), first, std::min(first + per_tile, runs.kept));
    }
  });
}

template <class S>
void runs_backward_of(const NormProblem& problem, const BackwardArrays<S>& arrays) {
  const Runs runs(problem);
  const int64_t per_tile = sets_per_tile(runs, 2 * sizeof(S));
  const int64_t tiles = ceil_div(runs.kept, per_tile);

  // Tiles whose weights are theirs alone share a part of the weight gradients; a part serves several outer indices.
  const int64_t weights = problem.affine.numel();
  const int64_t outer_per_part = ceil_div(runs.outer, weights > 4096 ? kMaxPartials / 4 : kMaxPartials);
  const int64_t outer_parts = ceil_div(runs.outer, outer_per_part);
  const int64_t tasks = outer_parts * tiles;
  Scratch shared;
  const WeightGradients gradients(shared, arrays.dweight != nullptr || arrays.dbias != nullptr,
                                  runs.own_weights ? outer_parts : tasks, weights);
  const int64_t task_elements = std::max<int64_t>(1, problem.shape.numel() / tasks);
  parallel_for(0, tasks, ceil_div(kPointwiseGrain, task_elements), [&](int64_t begin, int64_t end) {
    Scratch scratch;
    const RunsBackward<S> backward(problem, arrays, runs, scratch);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t outer_part = task / tiles;
      const int64_t part = runs.own_weights ? outer_part : task;
      const int64_t first = task % tiles * per_tile;
      for (int64_t outer = outer_part * outer_per_part; outer < std::min((outer_part + 1) * outer_per_part, runs.outer);
           ++outer) {
        backward.tile(runs.at(outer), first, std::min(first + per_tile, runs.kept), gradients.dweight(part),
                      gradients.dbias(part));
      }
    }
  });
  gradients.total(arrays.dweight, arrays.dbias);
}

void runs_forward(DType dtype, const NormProblem& problem, const NormForward& arrays) {
  dispatch_any_floating("normalize", dtype, [&](auto s) HWY_ATTR {
    runs_forward_of(problem, ForwardArrays<decltype(s)>(problem, arrays));
  });
}

void runs_backward(DType dtype, const NormProblem& problem, const NormBackward& arrays) {
  dispatch_any_floating("normalize", dtype, [&](auto s) HWY_ATTR {
    runs_backward_of(problem, BackwardArrays<decltype(s)>(problem, arrays));
  });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

HWY_EXPORT(runs_forward);
void runs_forward(DType dtype, const NormProblem& problem, const NormForward& arrays) {
  NORMA_SIMD_BEST(runs_forward)(dtype, problem, arrays);
}
HWY_EXPORT(runs_backward);
void runs_backward(DType dtype, const NormProblem& problem, const NormBackward& arrays) {
  NORMA_SIMD_BEST(runs_backward)(dtype, problem, arrays);
}

}  // namespace norma::kernels::cpu
#endif

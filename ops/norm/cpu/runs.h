// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_OPS_NORM_CPU_RUNS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_OPS_NORM_CPU_RUNS_H
#undef NORMA_OPS_NORM_CPU_RUNS_H
#else
#define NORMA_OPS_NORM_CPU_RUNS_H
#endif

#include "core/cpu/scratch.h"
#include "ops/norm/cpu/run_loops.h"
#include "ops/norm/cpu/strips.h"
#include "ops/norm/cpu/walks.h"

#include <algorithm>
#include <cstdint>

// Runs: a set is one or several runs of memory with one weight each (group norm, instance norm and batch norm in NCHW,
// and all norms without weights). Neighbouring sets are walked together, twice, while they stay in the cache.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

/// The number of elements whose dz, or z before the activation, stand in L1 between two loops.
inline constexpr int64_t kPiece = 2048;
/// The number of sets whose constants are computed side by side.
inline constexpr int64_t kMaxSets = 256;

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
  /// Calls f(k, r, count) for strips of `count` runs, which begin with run r of set k, the last strip first. None has
  /// more than most_in_strip().
  template <class F>
  void for_each_strip_from_the_end(int64_t first, int64_t last, int64_t element_bytes, F&& f) const {
    const int64_t most = most_in_strip(element_bytes);
    const int64_t strips = set_by_set ? 1 : runs;
    const int64_t in_each = set_by_set ? runs * (last - first) : last - first;
    for (int64_t r = strips - 1; r >= 0; --r) {
      for_each_block_from_the_end(0, in_each, most, [&](int64_t begin, int64_t end) {
        set_by_set ? f(first + begin / runs, begin % runs, end - begin) : f(first + begin, r, end - begin);
      });
    }
  }
  [[nodiscard]] int64_t most_in_strip(int64_t element_bytes) const {
    return std::max<int64_t>(1, kBackwardsBytes / (length * element_bytes));
  }
  /// Calls f(k, r, place in the strip) for the runs of a strip.
  template <class F>
  void for_each_in_strip(int64_t k, int64_t r, int64_t count, F&& f) const {
    for (int64_t i = 0; i < count; ++i) {
      f(k, r, i);
      if (!set_by_set || ++r == runs) {
        r = set_by_set ? 0 : r;
        ++k;
      }
    }
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
            f(first + (set_by_set ? i : j), set_by_set ? j : i);
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
inline int64_t sets_per_tile(const Runs& runs, int64_t element_bytes) {
  const int64_t set_bytes = runs.runs * runs.length * element_bytes;
  return std::min({std::max<int64_t>(1, kCacheBytes / set_bytes), kMaxSets, runs.kept});
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/norm/cpu/runs.cpp"
#include "core/simd/foreach_target.h"

#include "core/cpu/scratch.h"
#include "ops/norm/cpu/loops.h"

#include <algorithm>
#include <array>
#include <cstdint>

// Runs: a set is one or several runs of memory with one weight each (group norm, instance norm and batch norm in NCHW,
// and all norms without weights). Neighbouring sets are walked together, twice, while they stay in the cache.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

namespace {

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

// --- strips ---------------------------------------------------------------------------------------------------------

// Strips: runs of one length that follow each other in memory. Where the length is no multiple of a vector (7x7
// images), a loop for each run would have vectors across cache lines and a part of one at its end. Here vectors are
// aligned, and one in which a run ends has constants of both.

/// True iff runs of this length are taken as strips.
template <class T>
constexpr bool makes_strips(int64_t length) {
  return length >= kLanes<T> && length % kLanes<T> != 0;
}

/// The elements before the first aligned vector.
template <class S>
inline int64_t before_alignment(const S* at) {
  constexpr uintptr_t kBytes = kLanes<compute_t<S>> * sizeof(S);
  const uintptr_t beyond = reinterpret_cast<uintptr_t>(at) % kBytes;
  return static_cast<int64_t>((beyond == 0 ? 0 : kBytes - beyond) / sizeof(S));
}

/// Calls f(i, part, constants) for the vectors of a strip of `runs` runs, the first after `head` elements.
/// constants_of(run) gives a run's constants, whose blend(first, next) takes the first few lanes of its own and the
/// others of `next`. `head` and the lanes of a vector are at most `length`.
template <class T, class ConstantsOf, class F>
HWY_INLINE void for_each_lanes_of_strip(int64_t runs, int64_t length, int64_t head, ConstantsOf constants_of, F f) {
  constexpr int64_t lanes = kLanes<T>;
  auto constants = constants_of(0);
  if (head > 0) {
    f(0, First{static_cast<int>(head)}, constants);
  }
  int64_t i = head;
  int64_t left = length - head;  // of the run
  for (int64_t run = 0;;) {
    for (; left >= lanes; left -= lanes, i += lanes) {
      f(i, Whole{}, constants);
    }
    const First rest{static_cast<int>(left)};
    if (++run == runs) {
      if (left > 0) {
        f(i, rest, constants);
      }
      return;
    }
    const auto next = constants_of(run);
    if (left > 0) {
      f(i, Whole{}, constants.blend(rest, next));
      i += lanes;
      left -= lanes;
    }
    left += length;
    constants = next;
  }
}

/// The first few lanes of a, and the others of b.
template <class R, int n>
HWY_INLINE Parts<R, n> blend(First first, const Parts<R, n>& a, const Parts<R, n>& b) {
  return select(first_lanes<hn::TFromV<R>>(first.count), a, b);
}

/// The constants of z = ((x - mean) - mean_low) * scale + shift for the runs of a strip.
template <class T>
struct StripConstants {
  const T* mean;
  const T* mean_low;
  const T* scale;
  const T* shift;
};

/// An operand of a run that stands in a register.
template <class T>
struct Held {
  Lanes<T> value;
  template <class Part>
  HWY_INLINE Lanes<T> get(int64_t, Part) const {
    return value;
  }
};

/// y = z, f(z) or f(z + residual), where f is relu if `rectified`. residual may be null.
template <class S, class T = compute_t<S>>
inline void apply_strip(int64_t runs, int64_t length, const S* x, const S* residual, bool rectified, S* y,
                        const StripConstants<T>& of, const StreamingStore& out) {
  struct Constants {
    Lanes<T> mean;
    Lanes<T> mean_low;
    Lanes<T> scale;
    Lanes<T> shift;
    HWY_INLINE Constants blend(First first, const Constants& next) const {
      using HWY_NAMESPACE::blend;
      return {blend(first, mean, next.mean), blend(first, mean_low, next.mean_low), blend(first, scale, next.scale),
              blend(first, shift, next.shift)};
    }
  };
  const auto run = [&](auto then) {
    for_each_lanes_of_strip<T>(
        runs, length, before_alignment(y),
        [&](int64_t r) NORMA_INLINE {
          return Constants{broadcast(of.mean[r]), broadcast(of.mean_low[r]), broadcast(of.scale[r]),
                           broadcast(of.shift[r])};
        },
        [&](int64_t i, auto part, const Constants& c) NORMA_INLINE {
          const Lanes<T> d = difference(x, i, part, Held<T>{c.mean}, Held<T>{c.mean_low});
          out(y + i, then(multiply_add(d, c.scale, c.shift), i, part), part);
        });
  };
  const auto relu = [](Lanes<T> z) NORMA_INLINE { return zero_where(z <= broadcast(T(0)), z); };
  if (residual == nullptr) {
    rectified ? run([=](Lanes<T> z, int64_t, auto) NORMA_INLINE { return relu(z); })
              : run([](Lanes<T> z, int64_t, auto) NORMA_INLINE { return z; });
  } else {
    rectified ? run([=](Lanes<T> z, int64_t i, auto part) NORMA_INLINE { return relu(z + load(residual + i, part)); })
              : run([=](Lanes<T> z, int64_t i, auto part) NORMA_INLINE { return z + load(residual + i, part); });
  }
}

/// The constants of dx for the runs of a strip, as input_gradient_run() has them; bias is that of
/// z = ((x - mean) - mean_low) * by_dz + bias.
template <class T>
struct StripGradientConstants {
  const T* mean;
  const T* mean_low;
  const T* rstd;
  const T* by_dz;
  const T* by_xhat;
  const T* shift;
  const T* bias;
};

/// dx, as input_gradient_run() computes it. dz_of(constants of a vector, as Held) gives the operand dz.
template <class S, class DzOf, class T = compute_t<S>>
inline void input_gradient_strip(bool fixed_stats, int64_t runs, int64_t length, DzOf dz_of, const S* x, S* dx,
                                 const StripGradientConstants<T>& of, const StreamingStore& out) {
  struct Constants {
    Held<T> mean;
    Held<T> mean_low;
    Held<T> rstd;
    Held<T> by_dz;
    Held<T> by_xhat;
    Held<T> shift;
    Held<T> bias;
    HWY_INLINE Constants blend(First first, const Constants& next) const {
      const auto both = [first](const Held<T>& a, const Held<T>& b)
                            NORMA_INLINE { return Held<T>{HWY_NAMESPACE::blend(first, a.value, b.value)}; };
      return {both(mean, next.mean),   both(mean_low, next.mean_low), both(rstd, next.rstd),
              both(by_dz, next.by_dz), both(by_xhat, next.by_xhat),   both(shift, next.shift),
              both(bias, next.bias)};
    }
  };
  const auto run = [&](auto gradient) {
    for_each_lanes_of_strip<T>(
        runs, length, before_alignment(dx),
        [&](int64_t r) NORMA_INLINE {
          const auto held = [r](const T* numbers) NORMA_INLINE { return Held<T>{broadcast(numbers[r])}; };
          return Constants{held(of.mean),    held(of.mean_low), held(of.rstd), held(of.by_dz),
                           held(of.by_xhat), held(of.shift),    held(of.bias)};
        },
        [&](int64_t i, auto part, const Constants& c)
            NORMA_INLINE { out(dx + i, gradient(i, part, c, dz_of(c).get(i, part)), part); });
  };
  if (fixed_stats) {
    run([](int64_t, auto, const Constants& c, const Lanes<T>& dz) NORMA_INLINE { return dz * c.by_dz.value; });
  } else {
    run([x](int64_t i, auto part, const Constants& c, const Lanes<T>& dz) NORMA_INLINE {
      const auto xhat = difference(x, i, part, c.mean, c.mean_low) * c.rstd.value;
      return multiply_add(dz, c.by_dz.value, multiply_add(xhat, c.by_xhat.value, c.shift.value));
    });
  }
}

// --- forward --------------------------------------------------------------------------------------------------------

template <class S, class T = compute_t<S>>
class RunsForward {
 public:
  RunsForward(const NormProblem& problem, const ForwardArrays<S>& arrays, const Runs& runs, Scratch& scratch)
      : problem_(problem), arrays_(arrays), runs_(runs), out_(streams(problem, sizeof(S))) {
    if (arrays.activation != Activation::identity || arrays.residual != nullptr) {
      z_ = scratch.take<T>(std::min(kPiece, runs.length));
    }
    in_strips_ = makes_strips<T>(runs.length) && arrays.bits == nullptr &&
                 (arrays.activation == Activation::identity || arrays.activation == Activation::relu);
    for (T** of_runs : {&mean_, &mean_low_, &scale_, &shift_}) {
      *of_runs = in_strips_ ? scratch.take<T>(runs.most_in_strip(sizeof(S))) : nullptr;
    }
  }

  void tile(const Runs::Outer& outer, int64_t first, int64_t last) const {
    if (!problem_.fixed_stats) {
      statistics(outer, first, last);
    }
    if (arrays_.y != nullptr && in_strips_) {
      runs_.for_each_strip_from_the_end(
          first, last, sizeof(S), [&](int64_t k, int64_t r, int64_t count) { apply_to_strip(outer, k, r, count); });
    } else if (arrays_.y != nullptr) {
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

  void apply_to_strip(const Runs::Outer& outer, int64_t first, int64_t first_run, int64_t count) const {
    const bool affine = problem_.affine.present;
    runs_.for_each_in_strip(first, first_run, count, [&](int64_t k, int64_t r, int64_t i) {
      const int64_t set = outer.set + k;
      const int64_t weight = runs_.weight(outer, k, r);
      mean_[i] = arrays_.mean[set];
      mean_low_[i] = arrays_.mean_low[set];
      scale_[i] = affine ? arrays_.rstd[set] * arrays_.weight[weight] : arrays_.rstd[set];
      shift_[i] = affine ? arrays_.bias[weight] : T(0);
    });
    const int64_t at = runs_.offset(outer, first, first_run);
    apply_strip(count, runs_.length, arrays_.x + at, arrays_.residual == nullptr ? nullptr : arrays_.residual + at,
                arrays_.activation == Activation::relu, arrays_.y + at,
                StripConstants<T>{mean_, mean_low_, scale_, shift_}, out_);
  }

  const NormProblem& problem_;
  const ForwardArrays<S>& arrays_;
  const Runs& runs_;
  StreamingStore out_;
  T* z_ = nullptr;
  bool in_strips_;
  T* mean_;  ///< constants of the runs of a strip
  T* mean_low_;
  T* scale_;
  T* shift_;
};

}  // namespace

template <class S>
void runs_forward(const NormProblem& problem, const ForwardArrays<S>& arrays) {
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

// --- backward -------------------------------------------------------------------------------------------------------

namespace {

template <class S, class T = compute_t<S>>
class RunsBackward {
 public:
  RunsBackward(const NormProblem& problem, const BackwardArrays<S>& arrays, const Runs& runs, Scratch& scratch)
      : problem_(problem), arrays_(arrays), runs_(runs), of_dx_(problem), out_(streams(problem, sizeof(S))) {
    if (computes_dz_apart(arrays)) {
      dz_ = scratch.take<T>(std::min(kPiece, runs.length));
    }
    weights_wanted_ = arrays.dweight != nullptr || arrays.dbias != nullptr;
    in_strips_ = makes_strips<T>(runs.length) && dz_ == nullptr && arrays.dx != nullptr;
    for (T*& of_runs : strip_) {
      of_runs = in_strips_ ? scratch.take<T>(runs.most_in_strip(sizeof(S))) : nullptr;
    }
  }

  /// dweight and dbias begin with the gradients of the weights, or are null.
  void tile(const Runs::Outer& outer, int64_t first, int64_t last, double* dweight, double* dbias) const {
    const int64_t sets = last - first;
    double sum[kMaxSets];
    double sum_xhat[kMaxSets];
    std::fill_n(sum, sets, 0.0);
    std::fill_n(sum_xhat, sets, 0.0);
    if (weights_wanted_ || !problem_.fixed_stats) {
      const auto add = [&](int64_t k, int64_t weight, double of_dz, double of_dz_xhat) NORMA_INLINE {
        const double w = arrays_.weight == nullptr ? 1.0 : static_cast<double>(arrays_.weight[weight]);
        sum[k - first] += w * of_dz;
        sum_xhat[k - first] += w * of_dz_xhat;
        if (dweight != nullptr) {
          dweight[weight] += of_dz_xhat;
          dbias[weight] += of_dz;
        }
      };
      if (in_strips_ && runs_.length < kShort<T>) {
        short_sums(outer, first, last, add);
      } else {
        runs_.for_each(first, last, [&](int64_t k, int64_t r) {
          const Pair<double> of_run = sums(outer, k, r);
          add(k, runs_.weight(outer, k, r), of_run.first, of_run.second);
        });
      }
    }
    if (arrays_.dx == nullptr && arrays_.dresidual == nullptr) {
      return;
    }
    if (in_strips_) {
      runs_.for_each_strip_from_the_end(first, last, sizeof(S), [&](int64_t k, int64_t r, int64_t count) {
        write_strip(outer, k, r, count, first, sum, sum_xhat);
      });
      return;
    }
    runs_.for_each_from_the_end(first, last, sizeof(S), [&](int64_t k, int64_t r) {
      const int64_t set = outer.set + k;
      write(outer, k, r, of_dx_.of<double>(arrays_.mean[set], arrays_.rstd[set], sum[k - first], sum_xhat[k - first]));
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

  [[nodiscard]] auto where_positive(int64_t set, int64_t weight, int64_t at) const {
    return WherePositive<S, Same<T>, Same<T>, Same<T>, Same<T>>{arrays_.dy + at,      arrays_.x + at,
                                                                {arrays_.mean[set]},  {arrays_.mean_low[set]},
                                                                {scale(set, weight)}, {shift(weight)}};
  }

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
      return f(where_positive(set, weight, offset), offset, runs_.length);
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

  /// Calls add(k, weight, sum of dz, sum of dz * xhat) for runs shorter than kShort, whose dz an operand computes.
  template <class Add>
  void short_sums(const Runs::Outer& outer, int64_t first, int64_t last, Add add) const {
    const auto run = [&](auto dz_of) {
      runs_.for_each(first, last, [&](int64_t k, int64_t r) {
        const int64_t set = outer.set + k;
        const int64_t weight = runs_.weight(outer, k, r);
        const int64_t at = runs_.offset(outer, k, r);
        const GradientTerm term{dz_of(set, weight, at), arrays_.x + at, arrays_.mean[set], arrays_.mean_low[set],
                                arrays_.rstd[set]};
        const Pair<double> of_run = sum_short_run<T>(runs_.length, term);
        add(k, weight, of_run.first, of_run.second);
      });
    };
    if (arrays_.activation == Activation::identity) {
      run([&](int64_t, int64_t, int64_t at) NORMA_INLINE { return Given<S>{arrays_.dy + at}; });
    } else if (arrays_.bits != nullptr) {
      run([&](int64_t, int64_t, int64_t at) NORMA_INLINE { return WhereBits<S>{arrays_.dy + at, arrays_.bits, at}; });
    } else {
      run([&](int64_t set, int64_t weight, int64_t at) NORMA_INLINE { return where_positive(set, weight, at); });
    }
  }

  /// Writes dx and dresidual of a run.
  void write(const Runs::Outer& outer, int64_t k, int64_t r, const InputGradient<double>& gradient) const {
    const int64_t set = outer.set + k;
    const Same<T> mean{arrays_.mean[set]};
    const Same<T> mean_low{arrays_.mean_low[set]};
    const T rstd = arrays_.rstd[set];
    const T w = arrays_.weight == nullptr ? T(1) : arrays_.weight[runs_.weight(outer, k, r)];
    const Same<T> by_dz{rstd * w};
    const Same<T> by_xhat{static_cast<T>(gradient.by_xhat)};
    const Same<T> shift{static_cast<T>(gradient.shift)};
    for_each_piece(outer, k, r, arrays_.dresidual, [&](auto dz, int64_t offset, int64_t count) {
      if (arrays_.dx != nullptr) {
        input_gradient_run(problem_.fixed_stats, count, dz, arrays_.x + offset, arrays_.dx + offset, mean, mean_low,
                           Same<T>{rstd}, by_dz, by_xhat, shift, out_);
      }
    });
  }

  /// Writes dx and dresidual of a strip. The sums are those of the sets from `first_sum` on.
  void write_strip(const Runs::Outer& outer, int64_t first, int64_t first_run, int64_t count, int64_t first_sum,
                   const double* sum, const double* sum_xhat) const {
    const auto [mean, mean_low, rstd, by_dz, by_xhat, shift_of_dx, bias] = strip_;
    const bool computes_z = arrays_.activation == Activation::relu && arrays_.bits == nullptr;
    int64_t last_k = -1;
    InputGradient<T> gradient{};
    runs_.for_each_in_strip(first, first_run, count, [&](int64_t k, int64_t r, int64_t i) {
      const int64_t set = outer.set + k;
      const int64_t weight = runs_.weight(outer, k, r);
      if (k != last_k) {
        last_k = k;
        gradient =
            of_dx_.template of<T>(arrays_.mean[set], arrays_.rstd[set], sum[k - first_sum], sum_xhat[k - first_sum]);
      }
      mean[i] = arrays_.mean[set];
      mean_low[i] = arrays_.mean_low[set];
      rstd[i] = arrays_.rstd[set];
      by_dz[i] = scale(set, weight);
      by_xhat[i] = gradient.by_xhat;
      shift_of_dx[i] = gradient.shift;
      if (computes_z) {
        bias[i] = shift(weight);
      }
    });
    const int64_t at = runs_.offset(outer, first, first_run);
    const auto run = [&](auto dz_of) {
      input_gradient_strip(problem_.fixed_stats, count, runs_.length, dz_of, arrays_.x + at, arrays_.dx + at,
                           StripGradientConstants<T>{mean, mean_low, rstd, by_dz, by_xhat, shift_of_dx, bias}, out_);
    };
    const S* dy = arrays_.dy + at;
    if (arrays_.activation == Activation::identity) {
      run([=](const auto&) NORMA_INLINE { return Given<S>{dy}; });
    } else if (arrays_.bits == nullptr) {
      run([=, x = arrays_.x + at](const auto& c) NORMA_INLINE {
        return WherePositive<S, Held<T>, Held<T>, Held<T>, Held<T>>{dy, x, c.mean, c.mean_low, c.by_dz, c.bias};
      });
    } else if (arrays_.dresidual == nullptr) {
      run([=, bits = arrays_.bits](const auto&) NORMA_INLINE { return WhereBits<S>{dy, bits, at}; });
    } else {
      run([=, bits = arrays_.bits, dresidual = arrays_.dresidual + at](const auto&) NORMA_INLINE {
        return AndStored{WhereBits<S>{dy, bits, at}, dresidual};
      });
    }
  }

  const NormProblem& problem_;
  const BackwardArrays<S>& arrays_;
  const Runs& runs_;
  InputGradients of_dx_;
  StreamingStore out_;
  bool weights_wanted_;
  T* dz_ = nullptr;
  bool in_strips_;
  std::array<T*, 7> strip_;  ///< StripGradientConstants of the runs of a strip
};

}  // namespace

template <class S>
void runs_backward(const NormProblem& problem, const BackwardArrays<S>& arrays) {
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

WalkKernels runs_walk() {
  return walk_of([](const auto& problem, const auto& arrays) HWY_ATTR { runs_forward(problem, arrays); },
                 [](const auto& problem, const auto& arrays) HWY_ATTR { runs_backward(problem, arrays); });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

HWY_EXPORT(runs_walk);
WalkKernels runs_walk() {
  return NORMA_SIMD_BEST(runs_walk)();
}

}  // namespace norma::kernels::cpu
#endif
